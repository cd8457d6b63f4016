//! Raising our errors with their SQLSTATE.

use crate::error::Error;
use pgrx::pg_sys;
use std::ffi::{CString, c_char, c_int};

// pgrx keeps these out of its bindings: its own report knows only the SQLSTATEs of Postgres.
unsafe extern "C-unwind" {
    fn errstart(elevel: c_int, domain: *const c_char) -> bool;
    fn errcode(sqlerrcode: c_int) -> c_int;
    fn errmsg(fmt: *const c_char, ...) -> c_int;
    fn errdetail(fmt: *const c_char, ...) -> c_int;
    fn errhint(fmt: *const c_char, ...) -> c_int;
    fn errfinish(filename: *const c_char, lineno: c_int, funcname: *const c_char);
}

/// The result of a call, or its error raised in Postgres: what every face ends with.
pub fn face<R>(call: impl FnOnce() -> Result<R, Error>) -> R {
    match call() {
        Ok(result) => result,
        Err(error) => raise(&error),
    }
}

fn raise(error: &Error) -> ! {
    let code = sqlstate_code(error.sqlstate());
    let message = server_text(error.to_string());
    let detail = server_text(error.detail());
    let hint = server_text(error.hint());
    let (message, detail, hint) = (message.as_ptr(), detail.as_ptr(), hint.as_ptr());
    // SAFETY: main thread of a backend. The closure holds only Copy values, so errfinish may jump out
    // of it; the boundary turns the jump into a panic, and the strings are dropped while it unwinds.
    unsafe {
        pg_sys::ffi::pg_guard_ffi_boundary(|| {
            if errstart(pgrx::PgLogLevel::ERROR as c_int, std::ptr::null()) {
                errcode(code);
                errmsg(c"%s".as_ptr(), message);
                errdetail(c"%s".as_ptr(), detail);
                errhint(c"%s".as_ptr(), hint);
                errfinish(c"bide".as_ptr(), 0, c"bide".as_ptr());
            }
        });
    }
    unreachable!("an ERROR does not return")
}

/// MAKE_SQLSTATE: six bits a character, the first in the lowest.
fn sqlstate_code(sqlstate: &str) -> c_int {
    sqlstate.bytes().enumerate().fold(0, |code, (at, byte)| {
        code | ((i32::from(byte) - i32::from(b'0')) & 0x3f) << (6 * at)
    })
}

/// Messages are in the server's encoding: UTF-8 as it is, else ASCII with the rest escaped.
fn server_text(text: String) -> CString {
    // SAFETY: reads a variable of the backend.
    let utf8 = unsafe { pg_sys::GetDatabaseEncoding() } == pg_sys::pg_enc::PG_UTF8 as c_int;
    let text = if utf8 || text.is_ascii() {
        text
    } else {
        text.escape_default().to_string()
    };
    CString::new(text.replace('\0', "\u{fffd}")).expect("NUL was replaced")
}
