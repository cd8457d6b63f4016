//! The SQL that bide sends: constant text but for the tables' own names, every name qualified.

use crate::pg::scan::View;
use crate::pg::spi::Mode;
use pgrx::pg_sys::{BYTEAOID, INT8OID, Oid, TEXTOID, TIMESTAMPTZOID};

/// Quoted, qualified names of a store's tables.
pub struct Names {
    /// Of the schema alone, not quoted.
    pub schema: String,
    pub steps: String,
    pub leases: String,
    #[allow(dead_code)] // named beside the others; no statement reads it
    pub version: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statement {
    Position,
    Find,
    Last,
    Append,
    PageSizes,
    Page,
    RunAt,
    RunBehind,
    Lease,
    DeleteSteps,
    DeleteLease,
    FinishedBefore,
    IsFinished,
}

impl Statement {
    pub fn text(self, names: &Names) -> String {
        let (steps, leases) = (&names.steps, &names.leases);
        let ended = "name OPERATOR(pg_catalog.=) ANY (ARRAY['run:complete', 'run:aborted', \
                     'run:cancelled'])";
        match self {
            Statement::Position => format!(
                "SELECT seq FROM {steps} WHERE run_id OPERATOR(pg_catalog.=) $1 \
                 AND name OPERATOR(pg_catalog.=) $2"
            ),
            Statement::Find => format!(
                "SELECT seq, data, recorded_at FROM {steps} \
                 WHERE run_id OPERATOR(pg_catalog.=) $1 AND name OPERATOR(pg_catalog.=) $2"
            ),
            Statement::Last => format!(
                "SELECT seq FROM {steps} WHERE run_id OPERATOR(pg_catalog.=) $1 \
                 ORDER BY seq DESC LIMIT 1"
            ),
            // NULL where a trigger has changed the row.
            Statement::Append => format!(
                "INSERT INTO {steps} (run_id, seq, name, data, recorded_at) \
                 VALUES ($1, $2, $3, $4, $5) \
                 RETURNING CASE WHEN run_id OPERATOR(pg_catalog.=) $1 \
                 AND seq OPERATOR(pg_catalog.=) $2 AND name OPERATOR(pg_catalog.=) $3 \
                 AND data OPERATOR(pg_catalog.=) $4 THEN seq END"
            ),
            // octet_length reads the size of a large payload without reading the payload.
            Statement::PageSizes => format!(
                "SELECT seq, pg_catalog.int8(pg_catalog.octet_length(data)) FROM {steps} \
                 WHERE run_id OPERATOR(pg_catalog.=) $1 AND seq OPERATOR(pg_catalog.>) $2 \
                 ORDER BY seq LIMIT $3"
            ),
            Statement::Page => format!(
                "SELECT seq, name, data, recorded_at FROM {steps} \
                 WHERE run_id OPERATOR(pg_catalog.=) $1 AND seq OPERATOR(pg_catalog.>) $2 \
                 AND seq OPERATOR(pg_catalog.<=) $3 ORDER BY seq"
            ),
            Statement::RunAt => format!(
                "SELECT run_id FROM {steps} WHERE run_id OPERATOR(pg_catalog.>=) $1 \
                 ORDER BY run_id LIMIT 1"
            ),
            Statement::RunBehind => format!(
                "SELECT run_id FROM {steps} WHERE run_id OPERATOR(pg_catalog.>) $1 \
                 ORDER BY run_id LIMIT 1"
            ),
            Statement::Lease => format!(
                "SELECT holder, expiry FROM {leases} WHERE run_id OPERATOR(pg_catalog.=) $1"
            ),
            Statement::DeleteSteps => {
                format!("DELETE FROM {steps} WHERE run_id OPERATOR(pg_catalog.=) $1")
            }
            Statement::DeleteLease => {
                format!("DELETE FROM {leases} WHERE run_id OPERATOR(pg_catalog.=) $1")
            }
            // Spelt as the partial index is, so that the planner can use it.
            Statement::FinishedBefore => format!(
                "SELECT run_id FROM {steps} WHERE {ended} \
                 AND recorded_at OPERATOR(pg_catalog.<) $1 ORDER BY recorded_at, run_id LIMIT $2"
            ),
            Statement::IsFinished => format!(
                "SELECT seq FROM {steps} WHERE run_id OPERATOR(pg_catalog.=) $1 AND {ended} LIMIT 1"
            ),
        }
    }

    pub fn parameters(self) -> &'static [Oid] {
        match self {
            Statement::Position | Statement::Find => &[TEXTOID, TEXTOID],
            Statement::Append => &[TEXTOID, INT8OID, TEXTOID, BYTEAOID, TIMESTAMPTZOID],
            Statement::PageSizes | Statement::Page => &[TEXTOID, INT8OID, INT8OID],
            Statement::FinishedBefore => &[TIMESTAMPTZOID, INT8OID],
            Statement::Last
            | Statement::RunAt
            | Statement::RunBehind
            | Statement::Lease
            | Statement::DeleteSteps
            | Statement::DeleteLease
            | Statement::IsFinished => &[TEXTOID],
        }
    }

    pub fn mode(self, view: View) -> Mode {
        match self {
            Statement::Append | Statement::DeleteSteps | Statement::DeleteLease => Mode::Write,
            _ => Mode::Read(view),
        }
    }
}
