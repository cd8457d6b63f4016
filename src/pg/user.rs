//! Acting as another role: the owner of the tables, which nobody else needs rights on.

use pgrx::pg_sys;
use std::marker::PhantomData;

/// The rest of this scope runs as `role`, and cannot be made to change role or session settings.
pub struct ActAs {
    saved_user: pg_sys::Oid,
    saved_context: i32,
    _not_send: PhantomData<*const ()>,
}

impl ActAs {
    pub fn role(role: pg_sys::Oid) -> Self {
        let mut saved_user = pg_sys::InvalidOid;
        let mut saved_context = 0;
        // SAFETY: out-parameters are valid; an abort restores user and context by itself.
        unsafe {
            pg_sys::GetUserIdAndSecContext(&mut saved_user, &mut saved_context);
            pg_sys::SetUserIdAndSecContext(
                role,
                saved_context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32,
            );
        }
        Self { saved_user, saved_context, _not_send: PhantomData }
    }
}

impl Drop for ActAs {
    fn drop(&mut self) {
        // Also while an ERROR unwinds: somebody may catch it in a subtransaction of its own.
        // SAFETY: puts back what `role` found; guards nest.
        unsafe { pg_sys::SetUserIdAndSecContext(self.saved_user, self.saved_context) };
    }
}
