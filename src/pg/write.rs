//! Inserting rows below the planner: a heap insert and its index entries.
//!
//! At the executor's level, not `CatalogTupleInsert`: only the executor evaluates index expressions and
//! predicates. Only for plain tables (`Rel::is_plain`): nothing else is looked at.

use super::datum::Varlena;
use super::rel::{Column, Kind, Rel};
use pgrx::pg_sys;
use std::marker::PhantomData;

/// A value for a column. The column's type decides which one it must be.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    Bytes(&'a [u8]),
    Int8(i64),
}

/// Inserts rows into one table, whose indexes it holds open.
pub struct Writer<'r> {
    table: &'r Rel,
    slot: *mut pg_sys::TupleTableSlot,
    executor: *mut pg_sys::EState,
    result: *mut pg_sys::ResultRelInfo,
    _not_send: PhantomData<*const ()>,
}

impl<'r> Writer<'r> {
    /// `table` is open for writing.
    pub fn new(table: &'r Rel) -> Self {
        assert!(table.is_plain(), "only plain tables are written below the executor");
        // SAFETY: as COPY does it: a slot of the table's own kind, an executor state for predicates
        // and expressions, a zeroed node that InitResultRelInfo fills. Range table index 0: there is
        // no range table, and nothing on this path looks for one.
        unsafe {
            let slot = pg_sys::table_slot_create(table.raw(), std::ptr::null_mut());
            let executor = pg_sys::CreateExecutorState();
            let result =
                pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast::<pg_sys::ResultRelInfo>();
            (*result).type_ = pg_sys::NodeTag::T_ResultRelInfo;
            pg_sys::InitResultRelInfo(result, table.raw(), 0, std::ptr::null_mut(), 0);
            pg_sys::ExecOpenIndices(result, false);
            Self { table, slot, executor, result, _not_send: PhantomData }
        }
    }

    /// Inserts one row; columns that are not named are NULL. A unique index may raise 23505.
    /// Our later reads in this statement see it.
    pub fn insert(&mut self, row: &[(Column, Value<'_>)]) {
        let held: Vec<Option<Varlena>> = row
            .iter()
            .map(|(_, value)| match value {
                Value::Bytes(bytes) => Some(Varlena::new(bytes)),
                Value::Int8(_) => None,
            })
            .collect();
        // SAFETY: the slot has `natts` values; column numbers are within (`Rel::column`), kinds match
        // the column's type (asserted). The values outlive the insert, which copies them.
        unsafe {
            pg_sys::ExecClearTuple(self.slot);
            for at in 0..self.table.natts() {
                *(*self.slot).tts_values.add(at) = pg_sys::Datum::null();
                *(*self.slot).tts_isnull.add(at) = true;
            }
            for ((column, value), held) in row.iter().zip(&held) {
                let datum = match (column.kind(), value, held) {
                    (Kind::Text | Kind::Bytea, Value::Bytes(_), Some(varlena)) => varlena.datum(),
                    (Kind::Int8 | Kind::Timestamptz, Value::Int8(value), None) => {
                        pg_sys::Datum::from(*value)
                    }
                    _ => unreachable!("value and column differ in type"),
                };
                let at = column.number() as usize - 1;
                *(*self.slot).tts_values.add(at) = datum;
                *(*self.slot).tts_isnull.add(at) = false;
            }
            (*self.slot).tts_tableOid = self.table.oid();
            pg_sys::ExecStoreVirtualTuple(self.slot);
            pg_sys::table_tuple_insert(
                self.table.raw(),
                self.slot,
                pg_sys::GetCurrentCommandId(true),
                0,
                std::ptr::null_mut(),
            );
            if (*self.result).ri_NumIndices > 0 {
                self.insert_index_entries();
            }
            pg_sys::ExecClearTuple(self.slot);
            let context = (*self.executor).es_per_tuple_exprcontext;
            if !context.is_null() {
                pg_sys::MemoryContextReset((*context).ecxt_per_tuple_memory);
            }
            pg_sys::CommandCounterIncrement();
        }
    }

    /// # Safety
    /// The slot holds the row that has just been inserted.
    unsafe fn insert_index_entries(&mut self) {
        // SAFETY: result, slot and executor belong together; no arbiters, so a conflict is an ERROR
        // and the returned list of rechecks is empty (deferrable constraints have a trigger, and a
        // table with one is not plain).
        unsafe {
            #[cfg(any(feature = "pg14", feature = "pg15"))]
            pg_sys::ExecInsertIndexTuples(
                self.result,
                self.slot,
                self.executor,
                false,
                false,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            );
            #[cfg(any(feature = "pg16", feature = "pg17", feature = "pg18"))]
            pg_sys::ExecInsertIndexTuples(
                self.result,
                self.slot,
                self.executor,
                false,
                false,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                false,
            );
        }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: all three were made by `new`.
            unsafe {
                pg_sys::ExecCloseIndices(self.result);
                pg_sys::pfree(self.result.cast());
                pg_sys::ExecDropSingleTupleTableSlot(self.slot);
                pg_sys::FreeExecutorState(self.executor);
            }
        }
    }
}
