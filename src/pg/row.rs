//! A result of exactly one row.
//!
//! pgrx returns rows as a set: a memory context, an iterator, a row type looked up in the catalogs at
//! each call, and a second call to say that there are no more: together a tenth of an insert. But Postgres
//! takes what a set-returning function plainly returns for a set of one row, and the row type is fixed.

use super::datum::JsonOut;
use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::datum::{Datum, IntoDatum};
use pgrx::pg_sys;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use std::cell::Cell;
use std::ffi::CStr;

/// `(seq bigint, inserted boolean, stored T)`.
pub struct InsertedRow<T: Stored> {
    pub seq: i64,
    pub inserted: bool,
    pub stored: Option<T>,
}

/// The types that `stored` can have.
pub trait Stored: IntoDatum {
    const RETURNS: &'static str;
    /// The row type of the session, made at the first row.
    fn row_type() -> &'static std::thread::LocalKey<Cell<pg_sys::TupleDesc>>;
}

thread_local! {
    static BYTEA_ROW: Cell<pg_sys::TupleDesc> = const { Cell::new(std::ptr::null_mut()) };
    static JSON_ROW: Cell<pg_sys::TupleDesc> = const { Cell::new(std::ptr::null_mut()) };
}

impl Stored for Vec<u8> {
    const RETURNS: &'static str = "TABLE (seq bigint, inserted boolean, stored bytea)";

    fn row_type() -> &'static std::thread::LocalKey<Cell<pg_sys::TupleDesc>> {
        &BYTEA_ROW
    }
}

impl Stored for JsonOut {
    const RETURNS: &'static str = "TABLE (seq bigint, inserted boolean, stored json)";

    fn row_type() -> &'static std::thread::LocalKey<Cell<pg_sys::TupleDesc>> {
        &JSON_ROW
    }
}

// SAFETY: `row` makes rows of exactly the type that RETURNS declares.
unsafe impl<T: Stored> SqlTranslatable for InsertedRow<T> {
    const TYPE_IDENT: &'static str = T::RETURNS;
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Err(ArgumentError::Table);
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> =
        Ok(ReturnsRef::One(SqlMappingRef::literal(T::RETURNS)));
}

// SAFETY: returns a composite datum of the declared type, never NULL.
unsafe impl<T: Stored> BoxRet for InsertedRow<T> {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        let mut values =
            [pg_sys::Datum::from(self.seq), pg_sys::Datum::from(self.inserted), 0.into()];
        let mut nulls = [false, false, true];
        if let Some(stored) = self.stored.and_then(IntoDatum::into_datum) {
            (values[2], nulls[2]) = (stored, false);
        }
        // SAFETY: as many values as the type has columns; the tuple is palloc'd in the context that
        // Postgres calls us in.
        unsafe {
            let row_type = T::row_type().get();
            let row_type = if row_type.is_null() { make_row_type::<T>() } else { row_type };
            let tuple = pg_sys::heap_form_tuple(row_type, values.as_mut_ptr(), nulls.as_mut_ptr());
            fcinfo.return_raw_datum(pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data))
        }
    }
}

fn make_row_type<T: Stored>() -> pg_sys::TupleDesc {
    let columns: [(&CStr, pg_sys::Oid); 3] =
        [(c"seq", pg_sys::INT8OID), (c"inserted", pg_sys::BOOLOID), (c"stored", T::type_oid())];
    // SAFETY: made in a context that lives as long as the session; blessed, so that the type number in
    // each row leads back to it.
    unsafe {
        let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let row_type = pg_sys::CreateTemplateTupleDesc(columns.len() as i32);
        for (at, (name, type_oid)) in columns.into_iter().enumerate() {
            pg_sys::TupleDescInitEntry(row_type, at as i16 + 1, name.as_ptr(), type_oid, -1, 0);
        }
        let row_type = pg_sys::BlessTupleDesc(row_type);
        pg_sys::MemoryContextSwitchTo(context);
        T::row_type().set(row_type);
        row_type
    }
}
