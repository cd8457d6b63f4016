//! Descents of a B-tree index, and the rows they lead to.

use super::datum::{Varlena, varlena_to_vec};
use super::rel::{Column, Kind, Rel, Use};
use pgrx::pg_sys;
use std::marker::PhantomData;

/// Which rows a scan sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// What is committed now, and our own: exact under the run lock, at every isolation level, since
    /// steps never change; sets no predicate locks.
    Fresh,
    /// What the calling statement sees.
    Caller,
}

/// What bide knows of an index that it descends. Made by [`IndexShape::read`] only.
#[derive(Debug, Clone)]
pub struct IndexShape {
    oid: pg_sys::Oid,
    columns: Vec<IndexColumn>,
    unique: bool,
}

#[derive(Debug, Clone)]
struct IndexColumn {
    table_column: i16,
    collation: pg_sys::Oid,
    family: pg_sys::Oid,
    input_type: pg_sys::Oid,
    descending: bool,
}

impl IndexShape {
    /// The shape of a valid, immediate B-tree index on plain columns without predicate and INCLUDE
    /// columns; None for any other.
    pub fn read(index: pg_sys::Oid) -> Option<Self> {
        let open = Index::open(index, Use::Inspect);
        let relation = open.raw();
        // SAFETY: an open index has rd_index and, for its key columns, the arrays read here.
        unsafe {
            let form = &*(*relation).rd_index;
            let keys = form.indnkeyatts as usize;
            let simple = (*(*relation).rd_rel).relam == pg_sys::BTREE_AM_OID
                && form.indisvalid
                && form.indisready
                && form.indimmediate
                && form.indnatts == form.indnkeyatts
                && pg_sys::RelationGetIndexPredicate(relation).is_null()
                && pg_sys::RelationGetIndexExpressions(relation).is_null();
            if !simple {
                return None;
            }
            let columns = (0..keys)
                .map(|at| IndexColumn {
                    table_column: *form.indkey.values.as_ptr().add(at),
                    collation: *(*relation).rd_indcollation.add(at),
                    family: *(*relation).rd_opfamily.add(at),
                    input_type: *(*relation).rd_opcintype.add(at),
                    descending: *(*relation).rd_indoption.add(at) as u32 & pg_sys::INDOPTION_DESC
                        != 0,
                })
                .collect();
            Some(Self { oid: index, columns, unique: form.indisunique })
        }
    }

    pub fn oid(&self) -> pg_sys::Oid {
        self.oid
    }

    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// Whether it is on exactly these columns, in any order.
    pub fn is_on_set(&self, columns: &[Column]) -> bool {
        self.columns.len() == columns.len()
            && columns.iter().all(|column| {
                self.columns.iter().any(|of_index| of_index.table_column == column.number())
            })
    }

    /// Whether it can be descended by these columns in this order, comparing as Postgres does by
    /// default (any collation serves for equality: equal means equal bytes, in each that is
    /// deterministic; for an order the caller asks for "C").
    pub fn can_descend(&self, columns: &[Column]) -> bool {
        self.columns.len() == columns.len()
            && self.columns.iter().zip(columns).all(|(of_index, column)| {
                of_index.table_column == column.number()
                    && of_index.input_type
                        == match column.kind() {
                            Kind::Text => pg_sys::TEXTOID,
                            Kind::Int8 => pg_sys::INT8OID,
                            _ => return false,
                        }
                    && self.deterministic(of_index)
                    && of_index.has_operators()
            })
    }

    /// Whether its first column is in byte order, ascending: what `runs` walks along.
    pub fn is_in_byte_order(&self) -> bool {
        self.columns
            .first()
            .is_some_and(|first| first.collation == pg_sys::C_COLLATION_OID && !first.descending)
    }

    fn deterministic(&self, column: &IndexColumn) -> bool {
        column.collation == pg_sys::InvalidOid
            // SAFETY: a catalog look-up by a valid OID.
            || unsafe { pg_sys::get_collation_isdeterministic(column.collation) }
    }
}

impl IndexColumn {
    fn operator(&self, compare: Compare) -> pg_sys::Oid {
        // SAFETY: catalog look-ups by OID; InvalidOid where there is none.
        unsafe {
            let operator = pg_sys::get_opfamily_member(
                self.family,
                self.input_type,
                self.input_type,
                compare.strategy() as i16,
            );
            if operator == pg_sys::InvalidOid {
                return pg_sys::InvalidOid;
            }
            pg_sys::get_opcode(operator)
        }
    }

    fn has_operators(&self) -> bool {
        [Compare::Equal, Compare::Above, Compare::From]
            .iter()
            .all(|compare| self.operator(*compare) != pg_sys::InvalidOid)
    }
}

/// How an index column relates to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    Equal,
    Above,
    From,
}

impl Compare {
    fn strategy(self) -> u32 {
        match self {
            Compare::Equal => pg_sys::BTEqualStrategyNumber,
            Compare::Above => pg_sys::BTGreaterStrategyNumber,
            Compare::From => pg_sys::BTGreaterEqualStrategyNumber,
        }
    }
}

/// A key for one index column.
#[derive(Debug, Clone, Copy)]
pub enum Key<'a> {
    Text(Compare, &'a [u8]),
    Int8(Compare, i64),
}

/// Along the order of the *values*, whichever way the index is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

/// An open index. The caller holds a lock on the table, which keeps its indexes from being dropped.
pub(super) struct Index {
    relation: pg_sys::Relation,
    how: Use,
}

impl Index {
    pub(super) fn open(oid: pg_sys::Oid, how: Use) -> Self {
        // SAFETY: raises an ERROR where the OID is no index.
        Self { relation: unsafe { pg_sys::index_open(oid, how.lock_mode()) }, how }
    }

    pub(super) fn raw(&self) -> pg_sys::Relation {
        self.relation
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: opened by `open`.
            unsafe { pg_sys::index_close(self.relation, self.how.unlock_mode()) };
        }
    }
}

/// One scan, to be aimed again and again. Borrows the table, so it ends before the table closes.
pub struct Scan<'r> {
    shape: &'r IndexShape,
    scan: pg_sys::IndexScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
    _index: Index,
    _table: PhantomData<&'r Rel>,
}

impl<'r> Scan<'r> {
    pub fn begin(table: &'r Rel, shape: &'r IndexShape, view: View) -> Self {
        // As the table is: where rows are written too, one lock on the index serves for both.
        let index = Index::open(shape.oid, table.how());
        // SAFETY: table and index are open and locked; the active snapshot exists as long as the
        // statement that calls us, SnapshotSelf is static. The slot belongs to the table's format.
        unsafe {
            let snapshot = match view {
                View::Fresh => &raw mut pg_sys::SnapshotSelfData,
                View::Caller => pg_sys::GetActiveSnapshot(),
            };
            let keys = shape.columns.len() as i32;
            #[cfg(not(feature = "pg18"))]
            let scan = pg_sys::index_beginscan(table.raw(), index.raw(), snapshot, keys, 0);
            #[cfg(feature = "pg18")]
            let scan = pg_sys::index_beginscan(
                table.raw(),
                index.raw(),
                snapshot,
                std::ptr::null_mut(),
                keys,
                0,
            );
            let slot = pg_sys::table_slot_create(table.raw(), std::ptr::null_mut());
            Self { shape, scan, slot, _index: index, _table: PhantomData }
        }
    }

    /// The rows that match `keys`, which stand for the index's first columns, in the `order` of the
    /// first column that no key fixes. `visit` says whether to go on.
    pub fn each(&mut self, keys: &[Key<'_>], order: Order, mut visit: impl FnMut(Row<'_>) -> bool) {
        let held: Vec<Option<Varlena>> = keys
            .iter()
            .map(|key| match key {
                Key::Text(_, bytes) => Some(Varlena::new(bytes)),
                Key::Int8(..) => None,
            })
            .collect();
        // The scan was begun for as many keys as the index has columns, and may be given fewer.
        let mut scan_keys: Vec<pg_sys::ScanKeyData> = Vec::with_capacity(keys.len());
        for (at, (key, held)) in keys.iter().zip(&held).enumerate() {
            let column = &self.shape.columns[at];
            let (compare, argument) = match (key, held) {
                (Key::Text(compare, _), Some(varlena)) => (*compare, varlena.datum()),
                (Key::Int8(compare, value), _) => (*compare, pg_sys::Datum::from(*value)),
                (Key::Text(..), None) => unreachable!("a text key has its varlena"),
            };
            // SAFETY: all-zero is a valid ScanKeyData; ScanKeyEntryInitialize fills it. The column's
            // type is the key's (`can_descend`), the operator exists (ditto).
            unsafe {
                let mut scan_key: pg_sys::ScanKeyData = std::mem::zeroed();
                pg_sys::ScanKeyEntryInitialize(
                    &mut scan_key,
                    0,
                    (at + 1) as i16,
                    compare.strategy() as u16,
                    pg_sys::InvalidOid,
                    column.collation,
                    column.operator(compare),
                    argument,
                );
                scan_keys.push(scan_key);
            }
        }
        // The column that `order` speaks of: the first one that the keys leave open.
        let bound = keys
            .iter()
            .take_while(|key| {
                matches!(key, Key::Text(Compare::Equal, _) | Key::Int8(Compare::Equal, _))
            })
            .count();
        let descending = self.shape.columns.get(bound).is_some_and(|column| column.descending);
        let forward = (order == Order::Ascending) != descending;
        let direction = if forward {
            pg_sys::ScanDirection::ForwardScanDirection
        } else {
            pg_sys::ScanDirection::BackwardScanDirection
        };
        // SAFETY: the key count is set to what is passed (index_rescan copies that many); `held` and
        // `scan_keys` outlive the loop. The slot is ours.
        unsafe {
            (*self.scan).numberOfKeys = scan_keys.len() as i32;
            pg_sys::index_rescan(
                self.scan,
                scan_keys.as_mut_ptr(),
                scan_keys.len() as i32,
                std::ptr::null_mut(),
                0,
            );
            while pg_sys::index_getnext_slot(self.scan, direction, self.slot) {
                if !visit(Row { slot: self.slot, _scan: PhantomData }) {
                    break;
                }
            }
            // Lets go of the buffer, or a writer's VACUUM would wait for us.
            pg_sys::ExecClearTuple(self.slot);
        }
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: made by `begin`; the slot goes first, since it may pin a buffer of the table.
            unsafe {
                pg_sys::ExecDropSingleTupleTableSlot(self.slot);
                pg_sys::index_endscan(self.scan);
            }
        }
    }
}

/// A row while the scan stands on it.
#[derive(Clone, Copy)]
pub struct Row<'s> {
    slot: *mut pg_sys::TupleTableSlot,
    _scan: PhantomData<&'s ()>,
}

impl<'s> Row<'s> {
    pub(super) fn of_slot(slot: *mut pg_sys::TupleTableSlot) -> Self {
        Self { slot, _scan: PhantomData }
    }

    fn value(&self, column: Column) -> Option<pg_sys::Datum> {
        let mut is_null = true;
        // SAFETY: the slot holds a row of the table that the column was found in; a change of the
        // table takes a lock that conflicts with ours.
        let datum =
            unsafe { pg_sys::slot_getattr(self.slot, i32::from(column.number()), &mut is_null) };
        (!is_null).then_some(datum)
    }

    /// A copy of a text or bytea value.
    pub fn bytes(&self, column: Column) -> Option<Vec<u8>> {
        assert!(matches!(column.kind(), Kind::Text | Kind::Bytea), "a column of bytes");
        // SAFETY: the column has a varlena type (`Rel::column`).
        self.value(column).map(|datum| unsafe { varlena_to_vec(datum) })
    }

    /// Size of a text or bytea value in bytes, without reading it.
    pub fn size(&self, column: Column) -> usize {
        assert!(matches!(column.kind(), Kind::Text | Kind::Bytea), "a column of bytes");
        // SAFETY: as in `bytes`; only the header is read. It counts the header's four bytes.
        self.value(column)
            .map_or(0, |datum| unsafe { pg_sys::toast_raw_datum_size(datum) } - pg_sys::VARHDRSZ)
    }

    pub fn int8(&self, column: Column) -> Option<i64> {
        assert!(matches!(column.kind(), Kind::Int8 | Kind::Timestamptz), "a column of 8 bytes");
        self.value(column).map(|datum| datum.value() as i64)
    }

    pub fn int4(&self, column: Column) -> Option<i32> {
        assert_eq!(column.kind(), Kind::Int4, "an integer column");
        self.value(column).map(|datum| datum.value() as i32)
    }

    pub fn oid(&self, column: Column) -> Option<pg_sys::Oid> {
        assert_eq!(column.kind(), Kind::Regclass, "an OID column");
        self.value(column).map(|datum| pg_sys::Oid::from(datum.value() as u32))
    }
}

/// All rows of a small table, committed ones and our own, without a snapshot's predicate locks.
pub fn each_row(table: &Rel, mut visit: impl FnMut(Row<'_>)) {
    // SAFETY: the table is open and locked; slot and scan are ours and ended here. On an ERROR the
    // abort ends them.
    unsafe {
        let slot = pg_sys::table_slot_create(table.raw(), std::ptr::null_mut());
        let scan = pg_sys::table_beginscan(
            table.raw(),
            &raw mut pg_sys::SnapshotSelfData,
            0,
            std::ptr::null_mut(),
        );
        while pg_sys::table_scan_getnextslot(
            scan,
            pg_sys::ScanDirection::ForwardScanDirection,
            slot,
        ) {
            visit(Row::of_slot(slot));
        }
        pg_sys::ExecDropSingleTupleTableSlot(slot);
        pg_sys::table_endscan(scan);
    }
}
