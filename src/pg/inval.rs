//! Being told that a table which we keep facts about has changed.

use pgrx::{pg_guard, pg_sys};
use std::cell::{Cell, RefCell};

thread_local! {
    static GENERATION: Cell<u64> = const { Cell::new(0) };
    static WATCHED: RefCell<Vec<pg_sys::Oid>> = const { RefCell::new(Vec::new()) };
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Grows whenever a watched relation, or any schema's name, may have changed. Facts are valid while
/// the generation in which their reading *began* is still the current one.
pub fn generation() -> u64 {
    GENERATION.get()
}

/// From now on a change of any of these moves the generation.
pub fn watch(relations: impl IntoIterator<Item = pg_sys::Oid>) {
    if !REGISTERED.replace(true) {
        // SAFETY: once a session; the callbacks touch only the cells above.
        unsafe {
            pg_sys::CacheRegisterRelcacheCallback(Some(relation_changed), 0.into());
            pg_sys::CacheRegisterSyscacheCallback(
                pg_sys::SysCacheIdentifier::NAMESPACEOID as i32,
                Some(schema_changed),
                0.into(),
            );
        }
    }
    WATCHED.with_borrow_mut(|watched| {
        for relation in relations {
            if !watched.contains(&relation) {
                watched.push(relation);
            }
        }
    });
}

/// Forgets the list; the next check watches anew. Keeps it short over many DROP and CREATE EXTENSION.
pub fn unwatch_all() {
    WATCHED.with_borrow_mut(Vec::clear);
    moved();
}

fn moved() {
    GENERATION.set(GENERATION.get() + 1);
}

#[pg_guard]
unsafe extern "C-unwind" fn relation_changed(_arg: pg_sys::Datum, relation: pg_sys::Oid) {
    // InvalidOid means "anything may have changed". Being borrowed means that we are in `watch`.
    let ours = relation == pg_sys::InvalidOid
        || WATCHED
            .with(|watched| watched.try_borrow().map_or(true, |list| list.contains(&relation)));
    if ours {
        moved();
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn schema_changed(_arg: pg_sys::Datum, _cache: i32, _hash: u32) {
    moved();
}
