//! Reads a store's tables and refuses what the journal could not stand on.
//!
//! Checked: the tables exist and are ordinary or partitioned, their columns have name, type and byte-wise
//! collation, the unique indexes that make a step unique and its position its own are there, the schema
//! version is ours. Everything by OID and exact name.

use super::direct::Layout;
use super::{SCHEMA_VERSION, Store};
use crate::args::display;
use crate::error::Error;
use crate::pg::rel::{Column, Kind, Rel, Use};
use crate::pg::scan::{IndexShape, each_row};
use crate::pg::spi::quote_identifier;
use crate::pg::{catalog, inval, scan};
use crate::statement::Names;
use pgrx::pg_sys::{self, Oid};
use std::cell::RefCell;
use std::ffi::CStr;

/// Columns of `steps`.
pub struct StepsColumns {
    pub run_id: Column,
    pub seq: Column,
    pub name: Column,
    pub data: Column,
    pub recorded_at: Column,
}

/// Columns of `leases`.
pub struct LeasesColumns {
    pub run_id: Column,
    pub holder: Column,
    pub expiry: Column,
}

/// The OIDs that the table `stores` holds for a store.
struct Tables {
    steps: Oid,
    leases: Oid,
    version: Oid,
}

/// The store of that name, of the extension whose functions are in schema `bide`.
pub fn read(bide: Oid, name: &[u8]) -> Result<Store, Error> {
    let check = Check { store: display(name) };
    let stores = check.stores(bide)?;
    inval::watch([stores]);
    // From here on a change moves the generation away from this one.
    let generation = inval::generation();
    let tables = check.tables(stores, name)?;
    inval::watch([tables.steps, tables.leases, tables.version]);

    check.version(tables.version)?;
    let steps = check.open(tables.steps, "table steps")?;
    let leases = check.open(tables.leases, "table leases")?;
    let steps_columns = check.steps(&steps)?;
    let leases_columns = check.leases(&leases)?;
    let steps_indexes = shapes(&steps);
    let leases_indexes = shapes(&leases);
    let StepsColumns { run_id, seq, name: step_name, .. } = steps_columns;
    check.unique(&steps, &steps_indexes, &[run_id, seq], "run_id, seq")?;
    check.unique(&steps, &steps_indexes, &[run_id, step_name], "run_id, name")?;
    check.unique(&leases, &leases_indexes, &[leases_columns.run_id], "run_id")?;
    inval::watch(steps_indexes.iter().chain(&leases_indexes).map(IndexShape::oid));

    let names = Names {
        schema: catalog::schema_name(steps.namespace()).unwrap_or_default(),
        steps: qualified(&steps),
        leases: qualified(&leases),
    };
    let schema = steps.namespace();
    let owner = steps.owner();
    let layout =
        Layout::read(&steps, steps_columns, steps_indexes, &leases, leases_columns, leases_indexes);
    Ok(Store {
        name: name.to_vec(),
        bide,
        generation,
        schema,
        owner,
        steps: tables.steps,
        leases: tables.leases,
        layout,
        names,
        plans: RefCell::new(Vec::new()),
    })
}

/// The version that a store's tables have.
pub fn stored_version(bide: Oid, name: &[u8]) -> Result<(i32, Oid), Error> {
    let check = Check { store: display(name) };
    let tables = check.tables(check.stores(bide)?, name)?;
    let version = check.open(tables.version, "table schema_version")?;
    Ok((check.version_row(&version)?, version.namespace()))
}

struct Check {
    store: String,
}

impl Check {
    fn missing(&self, what: &'static str) -> Error {
        Error::TableMissing { store: self.store.clone(), what }
    }

    fn stores(&self, bide: Oid) -> Result<Oid, Error> {
        catalog::relation_in(bide, c"stores").ok_or_else(|| self.missing("table stores"))
    }

    fn tables(&self, stores: Oid, name: &[u8]) -> Result<Tables, Error> {
        let stores = self.open(stores, "table stores")?;
        let column = |name, kind| self.column(&stores, name, kind);
        let name_column = column(c"name", Kind::Text)?;
        let steps = column(c"steps", Kind::Regclass)?;
        let leases = column(c"leases", Kind::Regclass)?;
        let version = column(c"version", Kind::Regclass)?;
        let mut found = None;
        each_row(&stores, |row| {
            if row.bytes(name_column).is_some_and(|stored| stored == name) {
                let oid = |column| row.oid(column).unwrap_or(pg_sys::InvalidOid);
                found =
                    Some(Tables { steps: oid(steps), leases: oid(leases), version: oid(version) });
            }
        });
        found.ok_or_else(|| Error::UnknownStore { name: self.store.clone() })
    }

    fn open(&self, oid: Oid, what: &'static str) -> Result<Rel, Error> {
        Rel::open(oid, Use::Inspect).ok_or_else(|| self.missing(what))
    }

    fn wrong(&self, relation: &Rel, what: &'static str, fact: String) -> Error {
        Error::WrongTable { store: self.store.clone(), relation: relation.name(), what, fact }
    }

    fn table(&self, relation: &Rel, what: &'static str) -> Result<(), Error> {
        if !matches!(relation.kind(), pg_sys::RELKIND_RELATION | pg_sys::RELKIND_PARTITIONED_TABLE)
        {
            let fact = "It is neither an ordinary nor a partitioned table.".into();
            return Err(self.wrong(relation, what, fact));
        }
        if !relation.is_permanent() {
            let fact = "It is temporary or unlogged: a crash would empty it.".into();
            return Err(self.wrong(relation, what, fact));
        }
        if relation.forces_row_security() {
            let fact =
                "Row security is forced on it: which rows there are would depend on who asks.";
            return Err(self.wrong(relation, what, fact.into()));
        }
        Ok(())
    }

    fn column(&self, relation: &Rel, name: &CStr, kind: Kind) -> Result<Column, Error> {
        relation.column(name, kind).ok_or_else(|| {
            let fact =
                format!("It has no column {} of type {}.", name.to_string_lossy(), kind.sql());
            self.wrong(relation, "bide's data", fact)
        })
    }

    /// A text column that is compared byte by byte.
    fn id_column(&self, relation: &Rel, name: &CStr) -> Result<Column, Error> {
        let column = self.column(relation, name, Kind::Text)?;
        if !relation.is_collated_c(column) {
            let fact =
                format!("Its column {} does not have the collation \"C\".", name.to_string_lossy());
            return Err(self.wrong(relation, "bide's data", fact));
        }
        Ok(column)
    }

    fn steps(&self, steps: &Rel) -> Result<StepsColumns, Error> {
        self.table(steps, "steps")?;
        Ok(StepsColumns {
            run_id: self.id_column(steps, c"run_id")?,
            seq: self.column(steps, c"seq", Kind::Int8)?,
            name: self.id_column(steps, c"name")?,
            data: self.column(steps, c"data", Kind::Bytea)?,
            recorded_at: self.column(steps, c"recorded_at", Kind::Timestamptz)?,
        })
    }

    fn leases(&self, leases: &Rel) -> Result<LeasesColumns, Error> {
        self.table(leases, "leases")?;
        Ok(LeasesColumns {
            run_id: self.id_column(leases, c"run_id")?,
            holder: self.id_column(leases, c"holder")?,
            expiry: self.column(leases, c"expiry", Kind::Timestamptz)?,
        })
    }

    fn version(&self, oid: Oid) -> Result<(), Error> {
        let relation = self.open(oid, "table schema_version")?;
        let stored = self.version_row(&relation)?;
        if stored != SCHEMA_VERSION {
            return Err(Error::VersionUnsupported {
                store: self.store.clone(),
                stored,
                supported: SCHEMA_VERSION,
            });
        }
        Ok(())
    }

    fn version_row(&self, relation: &Rel) -> Result<i32, Error> {
        self.table(relation, "the schema version")?;
        if relation.kind() == pg_sys::RELKIND_PARTITIONED_TABLE {
            let fact = "It is partitioned; one row needs no partitions.".into();
            return Err(self.wrong(relation, "the schema version", fact));
        }
        let id = self.column(relation, c"id", Kind::Int4)?;
        let version = self.column(relation, c"version", Kind::Int4)?;
        let mut stored = None;
        each_row(relation, |row| {
            if row.int4(id) == Some(1) {
                stored = row.int4(version);
            }
        });
        stored.ok_or_else(|| Error::VersionMissing { store: self.store.clone() })
    }

    fn unique(
        &self,
        relation: &Rel,
        indexes: &[IndexShape],
        columns: &[Column],
        text: &'static str,
    ) -> Result<(), Error> {
        if indexes.iter().any(|index| index.is_unique() && index.is_on_set(columns)) {
            return Ok(());
        }
        Err(Error::NotUnique {
            store: self.store.clone(),
            relation: relation.name(),
            columns: text,
        })
    }
}

fn shapes(relation: &Rel) -> Vec<IndexShape> {
    relation.indexes().into_iter().filter_map(scan::IndexShape::read).collect()
}

fn qualified(relation: &Rel) -> String {
    let schema = catalog::schema_name(relation.namespace()).unwrap_or_default();
    format!("{}.{}", quote_identifier(&schema), quote_identifier(&relation.name()))
}
