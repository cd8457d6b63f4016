//! The client for applications: every operation one `SELECT` of one function, in autocommit.
//!
//! No call keeps a transaction open between round trips, so a client that stalls holds nothing. Errors
//! that Postgres says may be retried are retried, with full jitter, until the caller's deadline.

mod error;
mod journal;
mod retry;

pub use error::{Error, Kind};
pub use journal::{Entry, Inserted, Journal, RunFilter, Step};
