//! Run locks.
//!
//! Transaction-level advisory locks under a tag that SQL cannot name: class 3, where
//! `pg_advisory_lock` uses 1 and 2. So nobody but bide can stall a run, and no key of the
//! application's collides with ours. The lock lives until the commit is *complete*: whoever gets it
//! next sees what its last holder committed.

use crate::error::Error;
use crate::guc;
use crate::run_key::run_key;
use pgrx::{pg_guard, pg_sys};
use std::cell::{Cell, RefCell};

/// `locktag_field4`: 1 and 2 are SQL's advisory functions, 4 and up are taken by Citus.
const LOCK_CLASS: u16 = 3;
const EXCLUSIVE: pg_sys::LOCKMODE = pg_sys::ExclusiveLock as pg_sys::LOCKMODE;

thread_local! {
    /// Run locks that the transaction holds, by nesting level; level 1 is the top.
    static HELD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// A run lock that this call holds. Dropping it keeps the lock, which is the transaction's.
#[must_use = "a run lock is held to the end of the transaction"]
pub struct RunLock {
    tag: pg_sys::LOCKTAG,
    /// False where an earlier call of the transaction took it: then it is not ours to give back.
    taken_here: bool,
}

impl RunLock {
    /// Waits for the lock of `run`. Cancel, statement_timeout and lock_timeout end the wait.
    pub fn acquire(steps: pg_sys::Oid, run: &[u8]) -> Result<Self, Error> {
        let lock = Self::take(steps, run, false)?;
        Ok(lock.expect("a lock that is waited for is granted or an ERROR"))
    }

    /// The lock of `run` if nobody has it.
    pub fn try_acquire(steps: pg_sys::Oid, run: &[u8]) -> Result<Option<Self>, Error> {
        Self::take(steps, run, true)
    }

    fn take(steps: pg_sys::Oid, run: &[u8], only_if_free: bool) -> Result<Option<Self>, Error> {
        register();
        let tag = tag(run_key(steps.to_u32(), run));
        let (held, max) = (held_total(), guc::run_locks_max());
        if held >= max && !is_held(&tag) {
            return Err(Error::TooManyRunLocks { held, max });
        }
        // SAFETY: a valid tag; the owner is the current resource owner, so the lock ends with the
        // transaction, or with the subtransaction if that is rolled back.
        let answer = unsafe { pg_sys::LockAcquire(&tag, EXCLUSIVE, false, only_if_free) };
        match answer {
            pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL => Ok(None),
            pg_sys::LockAcquireResult::LOCKACQUIRE_OK => {
                count(1);
                Ok(Some(Self { tag, taken_here: true }))
            }
            _ => Ok(Some(Self { tag, taken_here: false })),
        }
    }

    /// Gives the lock back before the transaction ends. Only where this call changed nothing under
    /// it: a result may be large, and a client that does not read it must not stall the run.
    pub fn release(self) {
        // SAFETY: undoes exactly one LockAcquire of this call; an earlier one keeps its own count.
        unsafe { pg_sys::LockRelease(&self.tag, EXCLUSIVE, false) };
        if self.taken_here {
            count(-1);
        }
    }
}

fn tag(key: u64) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        // SAFETY: set at the start of the backend.
        locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
        locktag_field2: (key >> 32) as u32,
        locktag_field3: key as u32,
        locktag_field4: LOCK_CLASS,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

fn is_held(tag: &pg_sys::LOCKTAG) -> bool {
    // SAFETY: a look-up in the backend's own table.
    unsafe {
        #[cfg(any(feature = "pg14", feature = "pg15", feature = "pg16"))]
        return pg_sys::LockHeldByMe(tag, EXCLUSIVE);
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        return pg_sys::LockHeldByMe(tag, EXCLUSIVE, false);
    }
}

fn held_total() -> usize {
    HELD.with_borrow(|held| held.iter().sum())
}

fn count(change: isize) {
    // SAFETY: reads the transaction's state.
    let level = unsafe { pg_sys::GetCurrentTransactionNestLevel() } as usize;
    HELD.with_borrow_mut(|held| {
        if held.len() < level {
            held.resize(level, 0);
        }
        held[level - 1] = held[level - 1].saturating_add_signed(change);
    });
}

fn register() {
    if !REGISTERED.replace(true) {
        // SAFETY: once a session; the callbacks touch only the cells above.
        unsafe {
            pg_sys::RegisterXactCallback(Some(transaction_ends), std::ptr::null_mut());
            pg_sys::RegisterSubXactCallback(Some(subtransaction_ends), std::ptr::null_mut());
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn transaction_ends(
    event: pg_sys::XactEvent::Type,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PREPARE};
    if matches!(event, XACT_EVENT_COMMIT | XACT_EVENT_ABORT | XACT_EVENT_PREPARE) {
        HELD.with_borrow_mut(Vec::clear);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn subtransaction_ends(
    event: pg_sys::SubXactEvent::Type,
    _subid: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::SubXactEvent::{SUBXACT_EVENT_ABORT_SUB, SUBXACT_EVENT_COMMIT_SUB};
    // SAFETY: reads the transaction's state; at both events the subtransaction is still the current one.
    let level = unsafe { pg_sys::GetCurrentTransactionNestLevel() } as usize;
    HELD.with_borrow_mut(|held| {
        if level < 2 || held.len() < level {
            return;
        }
        let ended: usize = held.drain(level - 1..).sum();
        match event {
            SUBXACT_EVENT_COMMIT_SUB => held[level - 2] += ended,
            SUBXACT_EVENT_ABORT_SUB => {}
            // Start and pre-commit: nothing has ended.
            _ => held.push(ended),
        }
    });
}
