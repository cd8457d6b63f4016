//! `grant_access`: the only way to rights, and the only place that says who may call what.
//!
//! Rights are EXECUTE on functions and USAGE on the schema. Nobody needs rights on the tables: the code
//! acts as their owner, so nobody can place a position by hand or rewrite history.

use super::Store;
use crate::args::{optional_id, required};
use crate::error::Error;
use crate::pg::call::{Block, Call, prepare_to_write};
use crate::pg::catalog;
use crate::pg::datum::Text;
use crate::pg::report::face;
use crate::pg::spi::{quote_identifier, utility};
use crate::pg::user::ActAs;
use pgrx::prelude::*;

/// Smallest set first: each contains the ones before it.
const SETS: [(&str, &[&str]); 4] = [
    (
        "reader",
        &[
            "get",
            "load",
            "runs",
            "schema_version",
            "check_schema",
            "version",
            "to_cbor",
            "from_cbor",
        ],
    ),
    ("writer", &["insert", "insert_json", "insert_many", "next_seq"]),
    ("worker", &[]),
    ("admin", &["purge_run", "purge_finished", "grant_access"]),
];

/// Takes everything away.
const NONE: &str = "none";

fn grant(call: Call, role: &str, access: &str, store: &Store) -> Result<(), Error> {
    if catalog::role(role).is_none() {
        return Err(Error::UnknownRole { name: role.into() });
    }
    let sets = match SETS.iter().position(|(set, _)| *set == access) {
        Some(at) => at + 1,
        None if access == NONE => 0,
        None => {
            return Err(Error::UnknownWord {
                argument: "access",
                given: access.into(),
                known: "reader, writer, worker, admin, none",
            });
        }
    };
    let schema = quote_identifier(&catalog::schema_name(call.namespace()).unwrap_or_default());
    let role = quote_identifier(role);
    let functions = |sets: &[(&str, &[&str])]| {
        let names: Vec<String> = sets
            .iter()
            .flat_map(|(_, names)| *names)
            .map(|name| format!("{schema}.{}", quote_identifier(name)))
            .collect();
        names.join(", ")
    };
    let (given, taken) = SETS.split_at(sets);
    let _owner = ActAs::role(store.owner);
    // First away with what the set does not hold, then the set: at no time is there more than both.
    let taken = functions(taken);
    if !taken.is_empty() {
        utility(&format!("REVOKE EXECUTE ON FUNCTION {taken} FROM {role}"));
    }
    if given.is_empty() {
        utility(&format!("REVOKE USAGE ON SCHEMA {schema} FROM {role}"));
    } else {
        utility(&format!("GRANT USAGE ON SCHEMA {schema} TO {role}"));
        utility(&format!("GRANT EXECUTE ON FUNCTION {} TO {role}", functions(given)));
    }
    Ok(())
}

#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn grant_access(
    role: Option<Text<'_>>,
    access: Option<Text<'_>>,
    store: default!(Option<Text<'_>>, "'bide'"),
    fcinfo: pg_sys::FunctionCallInfo,
) {
    face(|| {
        let word = |argument, value: Option<Text<'_>>| -> Result<String, Error> {
            let bytes = optional_id(argument, Some(required(argument, value)?.0))?;
            if bytes.is_empty() {
                return Err(Error::Empty { argument });
            }
            Ok(crate::args::display(bytes))
        };
        let role = word("role", role)?;
        let access = word("access", access)?;
        // An administrator's statement like GRANT: it may stand in a transaction block.
        prepare_to_write("grant_access", Block::Allowed)?;
        let call = Call::new(fcinfo);
        grant(call, &role, &access, &*Store::find(call, store)?)
    })
}
