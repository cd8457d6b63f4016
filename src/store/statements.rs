//! Types of the statements' parameters, and how each runs.

use crate::pg::scan::View;
use crate::pg::spi::Mode;
use crate::statement::Statement;
use pgrx::pg_sys::{BYTEAOID, INT8OID, Oid, TEXTOID, TIMESTAMPTZOID};

impl Statement {
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
