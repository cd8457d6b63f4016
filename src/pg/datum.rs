//! Values across the border: ids and payloads as bytes, never through a conversion of text.
//!
//! pgrx's `&str` fails in databases that are not UTF-8; ours are the bytes Postgres has, in the
//! server's encoding.

use pgrx::callconv::{Arg, ArgAbi, BoxRet, FcInfo};
use pgrx::datum::{Datum, FromDatum, IntoDatum};
use pgrx::nullable::Nullable;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{pg_sys, varlena};

/// An SQL `text` argument: its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a>(pub &'a [u8]);

/// An SQL `json` argument: its text, which Postgres has checked to be JSON.
#[derive(Debug, Clone, Copy)]
pub struct Json<'a>(pub &'a [u8]);

/// An SQL `text[]` argument; more than one dimension is read like `unnest` does.
#[derive(Debug)]
pub struct TextArray<'a>(pub Vec<Option<&'a [u8]>>);

/// An SQL `bytea[]` argument.
#[derive(Debug)]
pub struct ByteaArray<'a>(pub Vec<Option<&'a [u8]>>);

/// An SQL `text` result.
#[derive(Debug)]
pub struct TextOut(pub Vec<u8>);

/// An SQL `json` result; whoever makes one has checked that it is JSON.
#[derive(Debug)]
pub struct JsonOut(pub Vec<u8>);

/// The bytes of a varlena, detoasted if need be.
///
/// # Safety
/// `datum` is a text, json or bytea value; the bytes live as long as it and the memory context.
pub(super) unsafe fn varlena_bytes<'a>(datum: pg_sys::Datum) -> &'a [u8] {
    // SAFETY: the caller's promise; a copy that detoasting makes lives in the current context.
    unsafe { packed_bytes(pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr())) }
}

/// # Safety
/// `packed` is a varlena that needs no detoasting.
unsafe fn packed_bytes<'a>(packed: *mut pg_sys::varlena) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe {
        std::slice::from_raw_parts(
            varlena::vardata_any(packed).cast::<u8>(),
            varlena::varsize_any_exhdr(packed),
        )
    }
}

/// The same as an owned copy; a detoasted intermediate is freed at once, as loops make many.
///
/// # Safety
/// As for [`varlena_bytes`].
pub(super) unsafe fn varlena_to_vec(datum: pg_sys::Datum) -> Vec<u8> {
    // SAFETY: the caller's promise.
    unsafe {
        let packed = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
        let bytes = packed_bytes(packed).to_vec();
        if packed != datum.cast_mut_ptr() {
            pg_sys::pfree(packed.cast());
        }
        bytes
    }
}

/// A varlena in memory of Rust's: freed when dropped, also while an ERROR unwinds.
pub(super) struct Varlena(Vec<u32>);

impl Varlena {
    pub(super) fn new(bytes: &[u8]) -> Self {
        const HEADER: usize = size_of::<u32>();
        let total = HEADER + bytes.len();
        let mut words = vec![0u32; total.div_ceil(HEADER)];
        // SAFETY: the vector has room for header and bytes, and is aligned to four bytes as a
        // varlena with a long header must be.
        unsafe {
            let start = words.as_mut_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(HEADER), bytes.len());
            varlena::set_varsize_4b(start.cast(), total as i32);
        }
        Self(words)
    }

    /// Valid while `self` is.
    pub(super) fn datum(&self) -> pg_sys::Datum {
        pg_sys::Datum::from(self.0.as_ptr())
    }
}

/// A palloc'd varlena, which Postgres owns.
fn palloc_varlena(bytes: &[u8]) -> pg_sys::Datum {
    bytes.into_datum().expect("bytes are never NULL")
}

macro_rules! sql_type {
    ($type:ty, $sql:literal) => {
        // SAFETY: the wrapped bytes are exactly what the SQL type's datum holds.
        unsafe impl SqlTranslatable for $type {
            const TYPE_IDENT: &'static str = concat!("bide::", stringify!($type));
            const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
            const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> =
                Ok(SqlMappingRef::literal($sql));
            const RETURN_SQL: Result<ReturnsRef, ReturnsError> =
                Ok(ReturnsRef::One(SqlMappingRef::literal($sql)));
        }
    };
}

macro_rules! argument {
    ($type:ident, $sql:literal, |$datum:ident| $($field:expr),+) => {
        sql_type!($type<'_>, $sql);

        impl<'a> FromDatum for $type<'a> {
            unsafe fn from_polymorphic_datum(
                $datum: pg_sys::Datum,
                is_null: bool,
                _type: pg_sys::Oid,
            ) -> Option<Self> {
                // SAFETY: Postgres passes a datum of the declared type.
                (!is_null).then(|| unsafe { $type($($field),+) })
            }
        }

        // SAFETY: reads the argument as the declared type only, NULL as NULL.
        unsafe impl<'fcx> ArgAbi<'fcx> for $type<'fcx> {
            unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
                // SAFETY: as promised by the caller.
                unsafe { arg.unbox_arg_using_from_datum() }
                    .expect("only Option is used for arguments")
            }

            unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
                // SAFETY: as promised by the caller.
                unsafe { arg.unbox_arg_using_from_datum() }.into()
            }
        }
    };
}

macro_rules! result {
    ($type:ident, $sql:literal, $oid:expr) => {
        sql_type!($type, $sql);

        impl IntoDatum for $type {
            fn into_datum(self) -> Option<pg_sys::Datum> {
                Some(palloc_varlena(&self.0))
            }

            fn type_oid() -> pg_sys::Oid {
                $oid
            }
        }

        // SAFETY: returns a datum of the declared type.
        unsafe impl BoxRet for $type {
            unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
                // SAFETY: freshly palloc'd, never NULL.
                unsafe { fcinfo.return_raw_datum(palloc_varlena(&self.0)) }
            }
        }
    };
}

pub(super) use {argument, sql_type};

argument!(Text, "text", |datum| varlena_bytes(datum));
argument!(Json, "json", |datum| varlena_bytes(datum));
argument!(TextArray, "text[]", |datum| array(datum, pg_sys::TEXTOID));
argument!(ByteaArray, "bytea[]", |datum| array(datum, pg_sys::BYTEAOID));
result!(TextOut, "text", pg_sys::TEXTOID);
result!(JsonOut, "json", pg_sys::JSONOID);

/// # Safety
/// `datum` is an array whose elements have the varlena type `element`.
unsafe fn array<'a>(datum: pg_sys::Datum, element: pg_sys::Oid) -> Vec<Option<&'a [u8]>> {
    let (mut datums, mut nulls, mut len) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
    // SAFETY: length -1, by reference, alignment int: so are text and bytea. The element pointers
    // point into the (detoasted) array, which lives as long as the call.
    unsafe {
        pg_sys::deconstruct_array(
            pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast(),
            element,
            -1,
            false,
            pg_sys::TYPALIGN_INT as std::ffi::c_char,
            &mut datums,
            &mut nulls,
            &mut len,
        );
        (0..len as usize)
            .map(|at| (!*nulls.add(at)).then(|| varlena_bytes(*datums.add(at))))
            .collect()
    }
}

/// JSON text in the server's encoding as UTF-8, the form in which it is stored.
pub fn server_to_utf8(text: &[u8]) -> Vec<u8> {
    // SAFETY: returns its argument, or a palloc'd, NUL-terminated copy. Invalid text is an ERROR.
    convert(text, |start, len| unsafe {
        pg_sys::pg_server_to_any(start, len, pg_sys::pg_enc::PG_UTF8 as i32)
    })
}

/// UTF-8 in the server's encoding. Bytes that are not UTF-8, or not in it, are an ERROR.
pub(super) fn utf8_to_server(utf8: &[u8]) -> Vec<u8> {
    // SAFETY: as in `server_to_utf8`, the other way round.
    convert(utf8, |start, len| unsafe {
        pg_sys::pg_any_to_server(start, len, pg_sys::pg_enc::PG_UTF8 as i32)
    })
}

/// Stored bytes as JSON text in the server's encoding. None: they are not JSON.
pub fn stored_json(bytes: &[u8]) -> Option<JsonOut> {
    use pgrx::PgSqlErrorCode::*;
    let text = std::panic::AssertUnwindSafe(bytes);
    // The caller raises its own error if this says no, so nothing goes on after a caught ERROR.
    pgrx::PgTryBuilder::new(move || {
        let c_string = std::ffi::CString::new(utf8_to_server(*text)).ok()?;
        // SAFETY: json_in takes a C string and checks it.
        unsafe {
            pgrx::direct_function_call_as_datum(
                pg_sys::json_in,
                &[Some(pg_sys::Datum::from(c_string.as_ptr()))],
            )
        }?;
        Some(JsonOut(c_string.into_bytes()))
    })
    .catch_when(ERRCODE_INVALID_TEXT_REPRESENTATION, |_| None)
    .catch_when(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE, |_| None)
    .catch_when(ERRCODE_UNTRANSLATABLE_CHARACTER, |_| None)
    .execute()
}

fn convert(
    text: &[u8],
    with: impl FnOnce(*const std::ffi::c_char, i32) -> *mut std::ffi::c_char,
) -> Vec<u8> {
    if text.is_empty() {
        return Vec::new();
    }
    let start = text.as_ptr().cast();
    let converted = with(start, text.len() as i32);
    if converted.cast_const() == start {
        return text.to_vec();
    }
    // SAFETY: another pointer than the argument's is a palloc'd C string.
    unsafe {
        let bytes = std::ffi::CStr::from_ptr(converted).to_bytes().to_vec();
        pg_sys::pfree(converted.cast());
        bytes
    }
}
