//! Open relations and the facts in their relcache entries.

use pgrx::pg_sys;
use std::marker::PhantomData;

/// How a call means to use a table: the table locks that SELECT and INSERT take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A look at its definition: the lock goes with the guard. Kept, it would deadlock with a REINDEX
    /// when the same transaction goes on to write.
    Inspect,
    Read,
    Write,
}

impl Use {
    pub(super) fn lock_mode(self) -> pg_sys::LOCKMODE {
        match self {
            Use::Inspect | Use::Read => pg_sys::AccessShareLock as pg_sys::LOCKMODE,
            Use::Write => pg_sys::RowExclusiveLock as pg_sys::LOCKMODE,
        }
    }

    /// What closing takes away: NoLock keeps the lock.
    pub(super) fn unlock_mode(self) -> pg_sys::LOCKMODE {
        match self {
            Use::Inspect => self.lock_mode(),
            Use::Read | Use::Write => pg_sys::NoLock as pg_sys::LOCKMODE,
        }
    }
}

/// An open, locked relation. The lock stays to the end of the transaction, as with any statement,
/// unless it was opened to inspect it.
pub struct Rel {
    relation: pg_sys::Relation,
    how: Use,
    _not_send: PhantomData<*const ()>,
}

/// A column that has been checked to be there with the type that its reader assumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    number: i16,
    kind: Kind,
}

/// The types that the journal's columns have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Bytea,
    Int4,
    Int8,
    Timestamptz,
    Regclass,
}

impl Kind {
    fn type_oid(self) -> pg_sys::Oid {
        match self {
            Kind::Text => pg_sys::TEXTOID,
            Kind::Bytea => pg_sys::BYTEAOID,
            Kind::Int4 => pg_sys::INT4OID,
            Kind::Int8 => pg_sys::INT8OID,
            Kind::Timestamptz => pg_sys::TIMESTAMPTZOID,
            Kind::Regclass => pg_sys::REGCLASSOID,
        }
    }

    pub fn sql(self) -> &'static str {
        match self {
            Kind::Text => "text",
            Kind::Bytea => "bytea",
            Kind::Int4 => "integer",
            Kind::Int8 => "bigint",
            Kind::Timestamptz => "timestamp with time zone",
            Kind::Regclass => "regclass",
        }
    }
}

impl Column {
    pub fn number(self) -> i16 {
        self.number
    }

    pub fn kind(self) -> Kind {
        self.kind
    }
}

impl Rel {
    /// None where no relation of that OID exists (any more). Waits for the table lock.
    pub fn open(oid: pg_sys::Oid, how: Use) -> Option<Self> {
        // SAFETY: any OID may be asked for; relation_close below undoes it.
        let relation = unsafe { pg_sys::try_relation_open(oid, how.lock_mode()) };
        // Lazily: a guard for NULL must not even be made, since dropping it would close NULL.
        (!relation.is_null()).then(|| Self { relation, how, _not_send: PhantomData })
    }

    pub(super) fn raw(&self) -> pg_sys::Relation {
        self.relation
    }

    pub(super) fn how(&self) -> Use {
        self.how
    }

    pub fn oid(&self) -> pg_sys::Oid {
        // SAFETY: the entry is pinned while open.
        unsafe { (*self.relation).rd_id }
    }

    fn class(&self) -> &pg_sys::FormData_pg_class {
        // SAFETY: rd_rel is set in every open relation and pinned with it.
        unsafe { &*(*self.relation).rd_rel }
    }

    pub fn owner(&self) -> pg_sys::Oid {
        self.class().relowner
    }

    pub fn namespace(&self) -> pg_sys::Oid {
        self.class().relnamespace
    }

    pub fn name(&self) -> String {
        pgrx::name_data_to_str(&self.class().relname).to_owned()
    }

    pub fn kind(&self) -> u8 {
        self.class().relkind as u8
    }

    pub fn is_permanent(&self) -> bool {
        self.class().relpersistence as u8 == pg_sys::RELPERSISTENCE_PERMANENT
    }

    pub fn forces_row_security(&self) -> bool {
        self.class().relrowsecurity && self.class().relforcerowsecurity
    }

    /// Whether its rows may be written below the executor: nothing but indexes watches them.
    pub fn is_plain(&self) -> bool {
        let class = self.class();
        let bare = class.relkind as u8 == pg_sys::RELKIND_RELATION
            && class.relam == pg_sys::HEAP_TABLE_AM_OID
            && self.is_permanent()
            && !class.relispartition
            && !class.relhassubclass
            && !class.relrowsecurity;
        bare && !self.has_rules_or_triggers() && !self.has_checked_or_generated_columns()
    }

    /// Not by the flags in pg_class, which stay set until a VACUUM after the last one was dropped.
    fn has_rules_or_triggers(&self) -> bool {
        // SAFETY: pointers in a pinned relcache entry, NULL where there are none.
        unsafe { !(*self.relation).rd_rules.is_null() || !(*self.relation).trigdesc.is_null() }
    }

    fn has_checked_or_generated_columns(&self) -> bool {
        // SAFETY: a pinned tuple descriptor; constr is NULL where there is none.
        unsafe {
            let constraints = (*(*self.relation).rd_att).constr;
            if constraints.is_null() {
                return false;
            }
            let constraints = &*constraints;
            #[cfg(feature = "pg18")]
            let virtual_columns = constraints.has_generated_virtual;
            #[cfg(not(feature = "pg18"))]
            let virtual_columns = false;
            constraints.num_check > 0 || constraints.has_generated_stored || virtual_columns
        }
    }

    /// Number of columns, dropped ones included.
    pub fn natts(&self) -> usize {
        // SAFETY: a pinned tuple descriptor.
        unsafe { (*(*self.relation).rd_att).natts as usize }
    }

    /// The column of that name if it has exactly that type.
    pub fn column(&self, name: &std::ffi::CStr, kind: Kind) -> Option<Column> {
        // SAFETY: a catalog look-up by OID and name.
        let number = unsafe { pg_sys::get_attnum(self.oid(), name.as_ptr()) };
        if number <= 0 {
            return None;
        }
        (self.column_facts(number).0 == kind.type_oid()).then_some(Column { number, kind })
    }

    /// Whether the column is compared byte by byte.
    pub fn is_collated_c(&self, column: Column) -> bool {
        self.column_facts(column.number).1 == pg_sys::C_COLLATION_OID
    }

    fn column_facts(&self, number: i16) -> (pg_sys::Oid, pg_sys::Oid) {
        let (mut type_oid, mut typmod, mut collation) = (pg_sys::InvalidOid, 0, pg_sys::InvalidOid);
        // SAFETY: an existing column; the out-parameters are valid.
        unsafe {
            pg_sys::get_atttypetypmodcoll(
                self.oid(),
                number,
                &mut type_oid,
                &mut typmod,
                &mut collation,
            );
        }
        (type_oid, collation)
    }

    /// How many of its columns are not dropped.
    pub fn live_columns(&self) -> usize {
        (1..=self.natts() as i16)
            .filter(|number| self.column_facts(*number).0 != pg_sys::InvalidOid)
            .count()
    }

    pub fn indexes(&self) -> Vec<pg_sys::Oid> {
        // SAFETY: returns a palloc'd list of OIDs, NIL being NULL.
        unsafe {
            let list = pg_sys::RelationGetIndexList(self.relation);
            if list.is_null() {
                return Vec::new();
            }
            (0..(*list).length as usize).map(|at| (*(*list).elements.add(at)).oid_value).collect()
        }
    }
}

impl Drop for Rel {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: opened by `open`.
            unsafe { pg_sys::relation_close(self.relation, self.how.unlock_mode()) };
        }
    }
}
