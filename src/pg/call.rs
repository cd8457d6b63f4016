//! What a call must be allowed to do before it takes a lock, and what it finds out about itself.

use crate::error::Error;
use crate::guc;
use pgrx::pg_sys;
use std::ffi::CString;

/// The function call that Postgres made.
#[derive(Clone, Copy)]
pub struct Call {
    namespace: pg_sys::Oid,
}

impl Call {
    /// From the argument that pgrx hands to every face.
    pub fn new(fcinfo: pg_sys::FunctionCallInfo) -> Self {
        // SAFETY: Postgres passes a valid fcinfo with its flinfo set to every C function.
        let function = unsafe { (*(*fcinfo).flinfo).fn_oid };
        // SAFETY: a cache look-up.
        Self { namespace: unsafe { pg_sys::get_func_namespace(function) } }
    }

    /// The schema of the called function, which is bide's own, whatever it is named now.
    pub fn namespace(self) -> pg_sys::Oid {
        self.namespace
    }
}

/// Whether a call may stand in a transaction block whatever `bide.transaction_block` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// Like GRANT: nobody waits for it.
    Allowed,
    /// Records steps and holds run locks.
    BySetting,
}

/// Postgres checks nothing for C code: a READ ONLY transaction or a parallel worker would write.
/// Called before any lock is taken. `function` is the SQL name, without its schema.
pub fn prepare_to_write(function: &'static str, block: Block) -> Result<(), Error> {
    // SAFETY: all read the transaction's state; the last two raise 25006 or 25000 by themselves.
    unsafe {
        if pg_sys::XactReadOnly || pg_sys::IsInParallelMode() {
            let name = CString::new(format!("bide.{function}()")).expect("our names have no NUL");
            pg_sys::PreventCommandIfReadOnly(name.as_ptr());
            pg_sys::PreventCommandIfParallelMode(name.as_ptr());
        }
    }
    let refused = block == Block::BySetting && !guc::transaction_block_allowed();
    // SAFETY: reads the transaction's state.
    if refused && unsafe { pg_sys::IsTransactionBlock() } {
        return Err(Error::TransactionBlock { function });
    }
    Ok(())
}

/// The server's clock, now: microseconds since 2000-01-01, as Postgres counts.
pub fn clock() -> pg_sys::TimestampTz {
    // SAFETY: no preconditions.
    unsafe { pg_sys::GetCurrentTimestamp() }
}
