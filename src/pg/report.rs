//! Errors on their way out: ours with their SQLSTATE, those of others with everything they had.
//!
//! pgrx carries a caught error through Rust as message, detail, hint and one of the SQLSTATEs that it
//! knows. A private SQLSTATE, the name of a violated constraint and the context would be lost, so:
//! while a call runs, a context callback copies each ERROR in full as it is raised; and when pgrx raises
//! it again at the call's edge, another context callback puts back what was lost.

use crate::error::Error;
use pgrx::pg_sys::panic::{CaughtError, ErrorReport};
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_guard, pg_sys};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

// pgrx keeps these out of its bindings. All set a field of the error that is being raised.
unsafe extern "C-unwind" {
    fn errcode(sqlerrcode: c_int) -> c_int;
    fn errcontext_msg(fmt: *const c_char, ...) -> c_int;
    fn err_generic_string(field: c_int, text: *const c_char) -> c_int;
    fn internalerrposition(cursorpos: c_int) -> c_int;
    fn internalerrquery(query: *const c_char) -> c_int;
}

/// What pgrx does not carry.
#[derive(Default)]
struct Fields {
    sqlstate: c_int,
    context: Option<CString>,
    internal_query: Option<CString>,
    internal_position: c_int,
    /// PG_DIAG_SCHEMA_NAME and so on.
    names: Vec<(u8, CString)>,
}

thread_local! {
    /// Of the last ERROR raised during a call.
    static LAST: RefCell<Option<Fields>> = const { RefCell::new(None) };
    /// Of the error that the running call ends with.
    static LEAVING: RefCell<Option<Fields>> = const { RefCell::new(None) };
    static COMPLETE: Cell<pg_sys::ErrorContextCallback> = const {
        Cell::new(pg_sys::ErrorContextCallback {
            previous: std::ptr::null_mut(),
            callback: Some(complete_error),
            arg: std::ptr::null_mut(),
        })
    };
}

/// The result of a call, or its error raised in Postgres: what every face ends with.
pub fn face<R>(call: impl FnOnce() -> Result<R, Error>) -> R {
    let answer = {
        let _witness = Witness::install();
        catch_unwind(AssertUnwindSafe(call))
    };
    match answer {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => {
            leave_with(Fields { sqlstate: sqlstate_code(error.sqlstate()), ..Fields::default() });
            raise(&error)
        }
        Err(panic) => {
            // A panic of ours is a bug and stays XX000.
            if let Some(CaughtError::PostgresError(_)) = panic.downcast_ref::<CaughtError>()
                && let Some(fields) = LAST.take()
            {
                leave_with(fields);
            }
            resume_unwind(panic)
        }
    }
}

fn raise(error: &Error) -> ! {
    // The SQLSTATE is put in by the callback that `leave_with` has installed.
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
        server_text(error.to_string()),
        "bide",
    )
    .set_detail(server_text(error.detail()))
    .set_hint(server_text(error.hint()))
    .report(PgLogLevel::ERROR);
    unreachable!("an ERROR does not return")
}

/// MAKE_SQLSTATE: six bits a character, the first in the lowest.
fn sqlstate_code(sqlstate: &str) -> c_int {
    sqlstate
        .bytes()
        .enumerate()
        .fold(0, |code, (at, byte)| code | ((i32::from(byte) - i32::from(b'0')) & 0x3f) << (6 * at))
}

/// Messages are in the server's encoding: UTF-8 as it is, else ASCII with the rest escaped.
fn server_text(text: String) -> String {
    // SAFETY: reads a variable of the backend.
    let utf8 = unsafe { pg_sys::GetDatabaseEncoding() } == pg_sys::pg_enc::PG_UTF8 as c_int;
    if utf8 || text.is_ascii() {
        return text;
    }
    let escape = |letter: char| match letter.is_ascii() {
        true => letter.to_string(),
        false => letter.escape_unicode().to_string(),
    };
    text.chars().map(escape).collect()
}

/// While it lives, each ERROR is copied in full as it is raised.
struct Witness(Box<pg_sys::ErrorContextCallback>);

impl Witness {
    fn install() -> Self {
        LAST.set(None);
        // SAFETY: the callback stays at its address (boxed) until Drop takes it off. Its argument is
        // the memory context of the call, which outlives it.
        unsafe {
            let mut callback = Box::new(pg_sys::ErrorContextCallback {
                previous: pg_sys::error_context_stack,
                callback: Some(copy_error),
                arg: pg_sys::CurrentMemoryContext.cast(),
            });
            pg_sys::error_context_stack = callback.as_mut();
            Self(callback)
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // SAFETY: an ERROR that was caught has put the stack back to where the failing call found it,
        // which is with this one on top, as is the ordinary way here.
        unsafe { pg_sys::error_context_stack = self.0.previous };
    }
}

/// Runs for every message of any level that is raised under a `Witness`.
#[pg_guard]
unsafe extern "C-unwind" fn copy_error(context: *mut c_void) {
    // SAFETY: called while a message is being raised, so there is one to copy; it must not be copied
    // into the context that errors live in, hence the call's.
    unsafe {
        let error_context = pg_sys::MemoryContextSwitchTo(context.cast());
        let copy = pg_sys::CopyErrorData();
        let error = &*copy;
        if error.elevel >= PgLogLevel::ERROR as c_int {
            use pg_sys::{
                PG_DIAG_COLUMN_NAME, PG_DIAG_CONSTRAINT_NAME, PG_DIAG_DATATYPE_NAME,
                PG_DIAG_SCHEMA_NAME, PG_DIAG_TABLE_NAME,
            };
            let names = [
                (PG_DIAG_SCHEMA_NAME, error.schema_name),
                (PG_DIAG_TABLE_NAME, error.table_name),
                (PG_DIAG_COLUMN_NAME, error.column_name),
                (PG_DIAG_DATATYPE_NAME, error.datatype_name),
                (PG_DIAG_CONSTRAINT_NAME, error.constraint_name),
            ];
            LAST.set(Some(Fields {
                sqlstate: error.sqlerrcode,
                context: owned(error.context),
                internal_query: owned(error.internalquery),
                internal_position: error.internalpos,
                names: names
                    .into_iter()
                    .filter_map(|(field, text)| Some((field, owned(text)?)))
                    .collect(),
            }));
        }
        pg_sys::FreeErrorData(copy);
        pg_sys::MemoryContextSwitchTo(error_context);
    }
}

/// # Safety
/// NULL or a C string.
unsafe fn owned(text: *const c_char) -> Option<CString> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
}

/// The next error to be raised, which is this call's, gets these fields.
fn leave_with(fields: Fields) {
    LEAVING.set(Some(fields));
    // SAFETY: thread-local memory stays where it is, so the callback may be on the stack after this
    // call has returned. Whoever catches the error puts the stack back to what it was before the call,
    // so it is never on it twice.
    unsafe {
        let callback = COMPLETE.with(Cell::as_ptr);
        (*callback).previous = pg_sys::error_context_stack;
        pg_sys::error_context_stack = callback;
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn complete_error(_arg: *mut c_void) {
    let Some(fields) = LEAVING.take() else { return };
    // SAFETY: called while our error is being raised; these set its fields, copying the texts.
    unsafe {
        errcode(fields.sqlstate);
        if let Some(context) = &fields.context {
            errcontext_msg(c"%s".as_ptr(), context.as_ptr());
        }
        if let Some(query) = &fields.internal_query {
            internalerrquery(query.as_ptr());
            internalerrposition(fields.internal_position);
        }
        for (field, text) in &fields.names {
            err_generic_string(c_int::from(*field), text.as_ptr());
        }
    }
}
