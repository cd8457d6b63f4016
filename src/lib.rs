//! bide: durable agents and workflows on Postgres.
//!
//! With the feature `server` this is the extension that Postgres loads; with `client` alone it is the
//! client for applications, which needs no Postgres headers. README.md is the manual.
#![deny(unsafe_code)]

#[cfg(all(feature = "server", not(panic = "unwind")))]
compile_error!("bide turns Postgres errors into panics and back: panic must be \"unwind\"");

pub mod args;
pub mod cbor;
pub mod error;
pub mod run_key;
pub mod statement;

#[cfg(feature = "client")]
pub mod client;

#[cfg(feature = "server")]
mod convert;
#[cfg(feature = "server")]
mod guc;
#[cfg(feature = "server")]
mod journal;
#[cfg(feature = "server")]
mod pg;
#[cfg(feature = "server")]
mod store;

#[cfg(feature = "server")]
mod wiring {
    use pgrx::prelude::*;

    ::pgrx::pg_module_magic!(name, version);

    /// Where the functions go. schema.sql makes it, before anything that pgrx emits.
    #[pg_schema]
    mod bide {}

    extension_sql_file!("../sql/schema.sql", name = "schema", bootstrap);
    extension_sql_file!("../sql/finish.sql", name = "finish", finalize);

    #[allow(unsafe_code, reason = "the entry point that Postgres calls")]
    #[pg_guard]
    pub extern "C-unwind" fn _PG_init() {
        crate::guc::define();
        crate::pg::reserve_settings();
    }
}
