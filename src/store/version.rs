//! `schema_version`, `check_schema`, `version`, and the trigger that makes sessions check anew.

use super::check;
use crate::args::{display, optional_id, required};
use crate::error::Error;
use crate::pg::call::Call;
use crate::pg::catalog;
use crate::pg::datum::Text;
use crate::pg::report::face;
use pgrx::prelude::*;

fn stored(call: Call, store: Option<Text<'_>>) -> Result<i32, Error> {
    let name = optional_id("store", store.map(|store| store.0))?;
    let (version, schema) = check::stored_version(call.namespace(), name)?;
    if !catalog::may_use_schema(schema) {
        let schema = catalog::schema_name(schema).unwrap_or_default();
        return Err(Error::NoUsage { store: display(name), schema });
    }
    Ok(version)
}

#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn schema_version(
    store: default!(Option<Text<'_>>, "'bide'"),
    fcinfo: pg_sys::FunctionCallInfo,
) -> i32 {
    face(|| stored(Call::new(fcinfo), store))
}

#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn check_schema(
    expected: Option<i32>,
    store: default!(Option<Text<'_>>, "'bide'"),
    fcinfo: pg_sys::FunctionCallInfo,
) {
    face(|| {
        let expected = required("expected", expected)?;
        let found = stored(Call::new(fcinfo), store)?;
        if found != expected {
            let store = display(store.map_or(&[][..], |store| store.0));
            return Err(Error::VersionMismatch { store, stored: found, expected });
        }
        Ok(())
    })
}

/// The version of the loaded library.
// STRICT makes no difference to a function without arguments.
#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// On `stores` and `schema_version`: a changed row makes every session read the store's facts anew,
/// as a change of a table's definition does by itself.
// Its SQL stands in finish.sql: pgrx has no schema for triggers.
#[pg_trigger(sql = false)]
fn store_changed<'a>(
    trigger: &'a pgrx::PgTrigger<'a>,
) -> Result<Option<PgHeapTuple<'a, impl WhoAllocated>>, pgrx::PgTriggerError> {
    catalog::announce_change(trigger.relation()?.oid());
    Ok(None::<PgHeapTuple<'a, pgrx::AllocatedByRust>>)
}
