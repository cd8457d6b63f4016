//! Inserting rows below the planner: a heap insert and its index entries.
//!
//! Only for plain tables (`Rel::is_plain`): nothing but the indexes is looked at. Index entries are made
//! here where all indexes are B-trees on columns, for all rows or for end names only; that saves a fifth
//! of an insert. With any other index the executor makes them, as for every INSERT: it alone evaluates
//! expressions and predicates (`CatalogTupleInsert` does not: it crashed on an expression index).

use super::catalog;
use super::datum::Varlena;
use super::rel::{Column, Kind, Rel, Use};
use super::scan::Index;
use pgrx::pg_sys;
use std::cell::OnceCell;
use std::marker::PhantomData;

/// A value for a column. The column's type decides which one it must be.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    Bytes(&'a [u8]),
    Int8(i64),
}

/// An index that holds only rows in which a column has one of these values.
#[derive(Debug, Clone, Copy)]
pub struct Partial {
    pub column: Column,
    pub values: &'static [&'static str],
    /// How Postgres writes that predicate, by which it is recognized.
    pub predicate: &'static str,
}

/// The indexes of a table, as far as inserting needs to know. Made by [`Entries::read`] only.
pub enum Entries {
    Known(Vec<Target>),
    /// One of them takes the executor.
    Executor,
}

/// An index whose entries are made here.
pub struct Target {
    index: pg_sys::Oid,
    /// Numbers of the table's columns, included ones too.
    columns: Vec<i16>,
    unique: bool,
    only: Option<Partial>,
}

impl Entries {
    /// `partial` is the one predicate that is known here.
    pub fn read(table: &Rel, partial: Partial) -> Self {
        let targets: Option<Vec<Target>> =
            table.indexes().into_iter().map(|index| Target::read(table, index, partial)).collect();
        targets.map_or(Entries::Executor, Entries::Known)
    }
}

impl Target {
    fn read(table: &Rel, oid: pg_sys::Oid, partial: Partial) -> Option<Self> {
        let index = Index::open(oid, Use::Inspect);
        // SAFETY: an open index has rd_rel and rd_index, and indkey has indnatts values.
        let (columns, unique) = unsafe {
            let form = &*(*index.raw()).rd_index;
            let simple = (*(*index.raw()).rd_rel).relam == pg_sys::BTREE_AM_OID
                && form.indisready
                && form.indimmediate
                && !form.indisexclusion;
            if !simple {
                return None;
            }
            let columns: Vec<i16> = (0..form.indnatts as usize)
                .map(|at| *form.indkey.values.as_ptr().add(at))
                .collect();
            (columns, form.indisunique)
        };
        // Zero stands for an expression, negative numbers for system columns.
        if columns.iter().any(|column| *column < 1) {
            return None;
        }
        let only = match catalog::index_predicate(oid, table.oid()) {
            None => None,
            Some(predicate) if predicate == partial.predicate => Some(partial),
            Some(_) => return None,
        };
        Some(Self { index: oid, columns, unique, only })
    }

    fn holds(&self, row: &[(Column, Value<'_>)]) -> bool {
        let Some(Partial { column, values, .. }) = self.only else { return true };
        row.iter().any(|(of_row, value)| {
            *of_row == column
                && matches!(value, Value::Bytes(bytes)
                    if values.iter().any(|value| value.as_bytes() == *bytes))
        })
    }
}

/// Inserts rows into one table.
pub struct Writer<'r> {
    table: &'r Rel,
    slot: *mut pg_sys::TupleTableSlot,
    indexes: Indexes<'r>,
    _not_send: PhantomData<*const ()>,
}

enum Indexes<'r> {
    /// Each is opened for the first row that goes into it.
    Ours(Vec<(&'r Target, OnceCell<Index>)>),
    Executor {
        state: *mut pg_sys::EState,
        result: *mut pg_sys::ResultRelInfo,
    },
}

impl<'r> Writer<'r> {
    /// `table` is open for writing, `entries` has been read from it as it is now.
    pub fn new(table: &'r Rel, entries: &'r Entries) -> Self {
        assert!(table.is_plain(), "only plain tables are written below the planner");
        let indexes = match entries {
            Entries::Known(targets) => {
                Indexes::Ours(targets.iter().map(|target| (target, OnceCell::new())).collect())
            }
            // SAFETY: as COPY does it: an executor state for predicates and expressions, a zeroed
            // node that InitResultRelInfo fills. Range table index 0: there is no range table, and
            // nothing on this path looks for one.
            Entries::Executor => unsafe {
                let state = pg_sys::CreateExecutorState();
                let result = pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>())
                    .cast::<pg_sys::ResultRelInfo>();
                (*result).type_ = pg_sys::NodeTag::T_ResultRelInfo;
                pg_sys::InitResultRelInfo(result, table.raw(), 0, std::ptr::null_mut(), 0);
                pg_sys::ExecOpenIndices(result, false);
                Indexes::Executor { state, result }
            },
        };
        // SAFETY: a slot of the table's own kind, dropped with the writer.
        let slot = unsafe { pg_sys::table_slot_create(table.raw(), std::ptr::null_mut()) };
        Self { table, slot, indexes, _not_send: PhantomData }
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
        let natts = self.table.natts();
        let mut values = vec![pg_sys::Datum::null(); natts];
        let mut nulls = vec![true; natts];
        for ((column, value), held) in row.iter().zip(&held) {
            let at = column.number() as usize - 1;
            values[at] = match (column.kind(), value, held) {
                (Kind::Text | Kind::Bytea, Value::Bytes(_), Some(varlena)) => varlena.datum(),
                (Kind::Int8 | Kind::Timestamptz, Value::Int8(value), None) => (*value).into(),
                _ => unreachable!("value and column differ in type"),
            };
            nulls[at] = false;
        }
        // SAFETY: the slot has `natts` values, each of its column's type or NULL; `held` outlives the
        // insert, which copies what it points to.
        unsafe {
            pg_sys::ExecClearTuple(self.slot);
            std::ptr::copy_nonoverlapping(values.as_ptr(), (*self.slot).tts_values, natts);
            std::ptr::copy_nonoverlapping(nulls.as_ptr(), (*self.slot).tts_isnull, natts);
            (*self.slot).tts_tableOid = self.table.oid();
            pg_sys::ExecStoreVirtualTuple(self.slot);
            pg_sys::table_tuple_insert(
                self.table.raw(),
                self.slot,
                pg_sys::GetCurrentCommandId(true),
                0,
                std::ptr::null_mut(),
            );
            self.insert_entries(row, &values, &nulls);
            pg_sys::ExecClearTuple(self.slot);
            pg_sys::CommandCounterIncrement();
        }
    }

    /// # Safety
    /// The slot holds the row that has just been inserted, made of these values.
    unsafe fn insert_entries(
        &mut self,
        row: &[(Column, Value<'_>)],
        values: &[pg_sys::Datum],
        nulls: &[bool],
    ) {
        match &self.indexes {
            Indexes::Ours(indexes) => {
                for (target, index) in indexes.iter().filter(|(target, _)| target.holds(row)) {
                    let index = index.get_or_init(|| Index::open(target.index, Use::Write));
                    // SAFETY: the caller's promise; the index belongs to the table.
                    unsafe { self.insert_entry(target, index, values, nulls) };
                }
            }
            // SAFETY: result, slot and state belong together; no arbiters, so a conflict is an ERROR
            // and the returned list of rechecks is empty (deferrable constraints have a trigger, and a
            // table with one is not plain).
            Indexes::Executor { state, result } => unsafe {
                if (**result).ri_NumIndices == 0 {
                    return;
                }
                pg_sys::ExecInsertIndexTuples(
                    *result,
                    self.slot,
                    *state,
                    false,
                    false,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    #[cfg(any(feature = "pg16", feature = "pg17", feature = "pg18"))]
                    false,
                );
                let context = (**state).es_per_tuple_exprcontext;
                if !context.is_null() {
                    pg_sys::MemoryContextReset((*context).ecxt_per_tuple_memory);
                }
            },
        }
    }

    /// # Safety
    /// As for `insert_entries`.
    unsafe fn insert_entry(
        &self,
        target: &Target,
        index: &Index,
        values: &[pg_sys::Datum],
        nulls: &[bool],
    ) {
        let of_index = |column: &i16| *column as usize - 1;
        let mut keys: Vec<_> =
            target.columns.iter().map(|column| values[of_index(column)]).collect();
        let mut absent: Vec<_> =
            target.columns.iter().map(|column| nulls[of_index(column)]).collect();
        let check = if target.unique {
            pg_sys::IndexUniqueCheck::UNIQUE_CHECK_YES
        } else {
            pg_sys::IndexUniqueCheck::UNIQUE_CHECK_NO
        };
        // SAFETY: the keys are the index's columns in order; the row's place is in the slot. B-tree
        // looks at nothing in the IndexInfo, which only has to be one.
        unsafe {
            let mut info: pg_sys::IndexInfo = std::mem::zeroed();
            info.type_ = pg_sys::NodeTag::T_IndexInfo;
            pg_sys::index_insert(
                index.raw(),
                keys.as_mut_ptr(),
                absent.as_mut_ptr(),
                &raw mut (*self.slot).tts_tid,
                self.table.raw(),
                check,
                false,
                &mut info,
            );
        }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: made by `new`, dropped once.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
            if let Indexes::Executor { state, result } = &self.indexes {
                pg_sys::ExecCloseIndices(*result);
                pg_sys::pfree((*result).cast());
                pg_sys::FreeExecutorState(*state);
            }
        }
    }
}
