//! Statements with kept plans, for tables that are not plain and for what is not hot.

use super::datum::{Varlena, varlena_to_vec};
use super::scan::View;
use pgrx::pg_sys;
use std::ffi::CString;
use std::marker::PhantomData;

/// A statement's plan, kept for the session. Postgres plans it anew when its tables change.
pub struct Plan {
    plan: pg_sys::SPIPlanPtr,
    parameters: Vec<pg_sys::Oid>,
}

/// A parameter.
#[derive(Debug, Clone, Copy)]
pub enum Param<'a> {
    Text(&'a [u8]),
    Bytea(&'a [u8]),
    Int8(i64),
    Timestamptz(i64),
}

impl Param<'_> {
    fn type_oid(self) -> pg_sys::Oid {
        match self {
            Param::Text(_) => pg_sys::TEXTOID,
            Param::Bytea(_) => pg_sys::BYTEAOID,
            Param::Int8(_) => pg_sys::INT8OID,
            Param::Timestamptz(_) => pg_sys::TIMESTAMPTZOID,
        }
    }
}

/// How a statement runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A read: assigns no transaction id, works on a standby.
    Read(View),
    /// A write on a snapshot taken now, after the locks that the call holds.
    Write,
}

/// A column of a result row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    Null,
    Bytes(Vec<u8>),
    Int8(i64),
}

impl Cell {
    pub fn int8(&self) -> Option<i64> {
        match self {
            Cell::Int8(value) => Some(*value),
            _ => None,
        }
    }

    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Cell::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// What a statement did.
pub struct Outcome {
    /// Rows that it returned or changed.
    pub processed: u64,
    pub rows: Vec<Vec<Cell>>,
}

/// A connection to SPI; connections nest.
struct Connection(PhantomData<*const ()>);

impl Connection {
    fn open() -> Self {
        // SAFETY: undone by Drop, or by the abort.
        let answer = unsafe { pg_sys::SPI_connect() };
        assert_eq!(answer, pg_sys::SPI_OK_CONNECT as i32, "SPI_connect cannot fail");
        Self(PhantomData)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: undoes `open`; connections nest.
            unsafe { pg_sys::SPI_finish() };
        }
    }
}

impl Plan {
    /// `sql` is ours, with every name qualified; it never holds input.
    pub fn prepare(sql: &str, parameters: &[pg_sys::Oid]) -> Self {
        let _connection = Connection::open();
        let text = CString::new(sql).expect("our statements have no NUL");
        let mut types = parameters.to_vec();
        // SAFETY: text and types outlive the call, which copies them. A kept plan survives SPI_finish.
        let plan = unsafe {
            let plan = pg_sys::SPI_prepare(text.as_ptr(), types.len() as i32, types.as_mut_ptr());
            assert!(!plan.is_null(), "SPI_prepare raises an ERROR where it cannot");
            pg_sys::SPI_keepplan(plan);
            plan
        };
        Self { plan, parameters: parameters.to_vec() }
    }

    /// Runs the statement. Errors of Postgres pass through.
    pub fn execute(&self, params: &[Param<'_>], mode: Mode) -> Outcome {
        assert!(
            params.iter().map(|param| param.type_oid()).eq(self.parameters.iter().copied()),
            "parameters are as prepared"
        );
        let held: Vec<Option<Varlena>> = params
            .iter()
            .map(|param| match param {
                Param::Text(bytes) | Param::Bytea(bytes) => Some(Varlena::new(bytes)),
                _ => None,
            })
            .collect();
        let mut values: Vec<pg_sys::Datum> = params
            .iter()
            .zip(&held)
            .map(|(param, held)| match (param, held) {
                (_, Some(varlena)) => varlena.datum(),
                (Param::Int8(value) | Param::Timestamptz(value), None) => {
                    pg_sys::Datum::from(*value)
                }
                (_, None) => unreachable!("bytes have their varlena"),
            })
            .collect();
        let _connection = Connection::open();
        // SAFETY: the plan is kept, values match its parameter types and outlive the call. A NULL
        // snapshot stands for the active one when the statement is read-only.
        let answer = unsafe {
            let (snapshot, read_only) = match mode {
                Mode::Read(View::Caller) => (pg_sys::GetActiveSnapshot(), true),
                Mode::Read(View::Fresh) => (pg_sys::GetLatestSnapshot(), true),
                Mode::Write => (pg_sys::GetLatestSnapshot(), false),
            };
            pg_sys::SPI_execute_snapshot(
                self.plan,
                values.as_mut_ptr(),
                std::ptr::null(),
                snapshot,
                std::ptr::null_mut(),
                read_only,
                true,
                0,
            )
        };
        assert!(answer >= 0, "SPI_execute_snapshot answered {answer}");
        // SAFETY: set by the statement above, valid until the connection ends.
        unsafe { Outcome { processed: pg_sys::SPI_processed, rows: rows() } }
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: kept by `prepare`, dropped once.
        unsafe { pg_sys::SPI_freeplan(self.plan) };
    }
}

/// Runs a utility statement of ours, such as GRANT.
pub fn utility(sql: &str) {
    let _connection = Connection::open();
    let text = CString::new(sql).expect("our statements have no NUL");
    // SAFETY: a C string; SPI raises the errors of the statement.
    let answer = unsafe { pg_sys::SPI_execute(text.as_ptr(), false, 0) };
    assert!(answer >= 0, "SPI_execute answered {answer}");
}

/// An identifier as SQL text.
pub fn quote_identifier(name: &str) -> String {
    pgrx::spi::quote_identifier(name)
}

/// # Safety
/// A statement has just been executed on the open connection.
unsafe fn rows() -> Vec<Vec<Cell>> {
    // SAFETY: SPI_tuptable is NULL or holds numvals rows described by tupdesc; values are copied.
    unsafe {
        let table = pg_sys::SPI_tuptable;
        if table.is_null() {
            return Vec::new();
        }
        let description = (*table).tupdesc;
        let columns = (*description).natts;
        (0..(*table).numvals as usize)
            .map(|row| {
                (1..=columns)
                    .map(|column| {
                        let mut is_null = true;
                        let tuple = *(*table).vals.add(row);
                        let datum = pg_sys::SPI_getbinval(tuple, description, column, &mut is_null);
                        if is_null {
                            return Cell::Null;
                        }
                        match pg_sys::SPI_gettypeid(description, column) {
                            pg_sys::TEXTOID | pg_sys::BYTEAOID => {
                                Cell::Bytes(varlena_to_vec(datum))
                            }
                            pg_sys::INT8OID | pg_sys::TIMESTAMPTZOID => {
                                Cell::Int8(datum.value() as i64)
                            }
                            other => unreachable!("our statements return no type {other:?}"),
                        }
                    })
                    .collect()
            })
            .collect()
    }
}
