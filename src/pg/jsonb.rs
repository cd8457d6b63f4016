//! Reading `jsonb` without going through text: numbers keep every digit.

use super::datum::{argument, sql_type};
use crate::cbor;
use crate::error::Error;
use pgrx::callconv::{Arg, ArgAbi};
use pgrx::datum::FromDatum;
use pgrx::nullable::Nullable;
use pgrx::pg_sys;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use serde_cbor::Value;
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// An SQL `jsonb` argument.
#[derive(Debug, Clone, Copy)]
pub struct Jsonb<'a>(*mut pg_sys::Jsonb, PhantomData<&'a ()>);

/// An SQL `jsonb` result, made from JSON text by Postgres itself.
#[derive(Debug)]
pub struct JsonbOut(pg_sys::Datum);

// A detoasted copy lives as long as the call.
argument!(
    Jsonb,
    "jsonb",
    |datum| pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast(),
    PhantomData
);
sql_type!(JsonbOut, "jsonb");

// SAFETY: returns a jsonb datum.
unsafe impl pgrx::callconv::BoxRet for JsonbOut {
    unsafe fn box_into<'fcx>(
        self,
        fcinfo: &mut pgrx::callconv::FcInfo<'fcx>,
    ) -> pgrx::datum::Datum<'fcx> {
        // SAFETY: made by jsonb_in, never NULL.
        unsafe { fcinfo.return_raw_datum(self.0) }
    }
}

impl JsonbOut {
    /// `json` is in UTF-8; Postgres parses it.
    pub fn parse(json: &str) -> Self {
        let utf8 = json.as_bytes();
        let server = super::datum::utf8_to_server(utf8);
        let text = std::ffi::CString::new(server).expect("the writer refuses NUL");
        // SAFETY: jsonb_in takes a C string, checks it and copies what it needs.
        let datum = unsafe {
            pgrx::direct_function_call_as_datum(
                pg_sys::jsonb_in,
                &[Some(pg_sys::Datum::from(text.as_ptr()))],
            )
        };
        Self(datum.expect("jsonb_in never returns NULL"))
    }
}

/// An array or object that is being read.
enum Open {
    Array { items: Vec<Value>, scalar: bool },
    Object { entries: BTreeMap<Value, Value>, key: Option<Value> },
}

impl Jsonb<'_> {
    /// The document as a CBOR value.
    pub fn to_cbor(self) -> Result<Value, Error> {
        use pg_sys::JsonbIteratorToken::*;
        let mut open: Vec<Open> = Vec::new();
        // SAFETY: all-zero is a valid JsonbValue to be filled; the iterator reads the (detoasted)
        // document, which lives as long as the call, and ends with WJB_DONE.
        let (mut value, mut iterator) = unsafe {
            (
                std::mem::zeroed::<pg_sys::JsonbValue>(),
                pg_sys::JsonbIteratorInit(&raw mut (*self.0).root),
            )
        };
        loop {
            // SAFETY: as above.
            let token = unsafe { pg_sys::JsonbIteratorNext(&mut iterator, &mut value, false) };
            match token {
                WJB_BEGIN_ARRAY | WJB_BEGIN_OBJECT => {
                    if open.len() >= cbor::DEPTH_MAX {
                        let what = format!("more than {} levels of nesting", cbor::DEPTH_MAX);
                        return Err(Error::JsonNotCbor { what });
                    }
                    open.push(if token == WJB_BEGIN_OBJECT {
                        Open::Object { entries: BTreeMap::new(), key: None }
                    } else {
                        // SAFETY: at the beginning of an array the union holds an array.
                        let scalar = unsafe { value.val.array.rawScalar };
                        Open::Array { items: Vec::new(), scalar }
                    });
                }
                WJB_KEY => {
                    // SAFETY: a key is a string.
                    let name = unsafe { string(&value) };
                    if let Some(Open::Object { key, .. }) = open.last_mut() {
                        *key = Some(name);
                    }
                }
                WJB_VALUE | WJB_ELEM => {
                    // SAFETY: the iterator has filled the value.
                    let item = unsafe { scalar(&value) }?;
                    add(&mut open, item);
                }
                WJB_END_ARRAY | WJB_END_OBJECT => {
                    let ended = match open.pop().expect("every end has its beginning") {
                        Open::Array { mut items, scalar: true } => {
                            items.pop().expect("a scalar document has one element")
                        }
                        Open::Array { items, scalar: false } => Value::Array(items),
                        Open::Object { entries, .. } => Value::Map(entries),
                    };
                    if open.is_empty() {
                        return Ok(ended);
                    }
                    add(&mut open, ended);
                }
                other => unreachable!("a document is one array or object, not token {other}"),
            }
        }
    }
}

fn add(open: &mut [Open], item: Value) {
    match open.last_mut().expect("a value stands in an array or object") {
        Open::Array { items, .. } => items.push(item),
        Open::Object { entries, key } => {
            entries.insert(key.take().expect("a key precedes its value"), item);
        }
    }
}

/// # Safety
/// The value holds a string.
unsafe fn string(value: &pg_sys::JsonbValue) -> Value {
    // SAFETY: the caller's promise.
    let bytes = unsafe {
        let string = value.val.string;
        std::slice::from_raw_parts(string.val.cast::<u8>(), string.len as usize)
    };
    Value::Text(String::from_utf8_lossy(&super::datum::server_to_utf8(bytes)).into_owned())
}

/// # Safety
/// The value is a scalar that the iterator has filled.
unsafe fn scalar(value: &pg_sys::JsonbValue) -> Result<Value, Error> {
    use pg_sys::jbvType;
    // SAFETY: the tag says which member of the union is set.
    unsafe {
        Ok(match value.type_ {
            jbvType::jbvNull => Value::Null,
            jbvType::jbvBool => Value::Bool(value.val.boolean),
            jbvType::jbvString => string(value),
            jbvType::jbvNumeric => {
                let text: &std::ffi::CStr = pgrx::direct_function_call(
                    pg_sys::numeric_out,
                    &[Some(pg_sys::Datum::from(value.val.numeric))],
                )
                .expect("numeric_out never returns NULL");
                return cbor::number(text.to_str().expect("digits are ASCII"));
            }
            other => unreachable!("the iterator unpacks containers, not type {other}"),
        })
    }
}
