//! Postgres' C interface behind safe types: the only `unsafe` of the server half.
//!
//! Holds everywhere: one thread (a backend's), inside a transaction. What must be undone has a guard;
//! while an ERROR unwinds, guards leave the undoing to the transaction's abort, which does it anyway.
//! All `pg_sys` functions turn a Postgres ERROR into a Rust panic, so destructors run on the way out.
#![allow(unsafe_code)]

pub mod call;
pub mod catalog;
pub mod datum;
pub mod inval;
pub mod jsonb;
pub mod lock;
pub mod rel;
pub mod report;
pub mod row;
pub mod scan;
pub mod spi;
pub mod user;
pub mod write;

/// Makes a setting whose name begins with `bide.` and that does not exist an error.
pub fn reserve_settings() {
    // SAFETY: a C string; called once, from `_PG_init`, after our settings are defined.
    unsafe {
        #[cfg(feature = "pg14")]
        pgrx::pg_sys::EmitWarningsOnPlaceholders(c"bide".as_ptr());
        #[cfg(not(feature = "pg14"))]
        pgrx::pg_sys::MarkGUCPrefixReserved(c"bide".as_ptr());
    }
}
