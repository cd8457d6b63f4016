//! Look-ups in the system catalogs, by OID or by exact name: never along the search_path.

use pgrx::pg_sys;
use std::ffi::{CStr, CString};

/// The relation of that name in that schema.
pub fn relation_in(namespace: pg_sys::Oid, name: &CStr) -> Option<pg_sys::Oid> {
    // SAFETY: a cache look-up.
    found(unsafe { pg_sys::get_relname_relid(name.as_ptr(), namespace) })
}

/// The name of a schema.
pub fn schema_name(namespace: pg_sys::Oid) -> Option<String> {
    // SAFETY: returns a palloc'd C string or NULL.
    unsafe {
        let name = pg_sys::get_namespace_name(namespace);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    }
}

/// The role of that name.
pub fn role(name: &str) -> Option<pg_sys::Oid> {
    let name = CString::new(name).ok()?;
    // SAFETY: a cache look-up; true: no error where it is missing.
    found(unsafe { pg_sys::get_role_oid(name.as_ptr(), true) })
}

/// Whether the current user may use the schema.
pub fn may_use_schema(namespace: pg_sys::Oid) -> bool {
    // SAFETY: privilege look-ups by OID.
    unsafe {
        let user = pg_sys::GetUserId();
        let mode = pg_sys::ACL_USAGE as pg_sys::AclMode;
        #[cfg(any(feature = "pg14", feature = "pg15"))]
        let answer = pg_sys::pg_namespace_aclcheck(namespace, user, mode);
        #[cfg(any(feature = "pg16", feature = "pg17", feature = "pg18"))]
        let answer = pg_sys::object_aclcheck(pg_sys::NamespaceRelationId, namespace, user, mode);
        answer == pg_sys::AclResult::ACLCHECK_OK
    }
}

/// Tells every session, ours too, to read its facts about the relation anew.
pub fn announce_change(relation: pg_sys::Oid) {
    // SAFETY: raises an ERROR where the OID is no relation.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(relation) };
}

/// The predicate of a partial index, as Postgres writes it.
pub fn index_predicate(index: pg_sys::Oid, table: pg_sys::Oid) -> Option<String> {
    let cache = pg_sys::SysCacheIdentifier::INDEXRELID as i32;
    // SAFETY: the tuple is released; the attribute is read while it is held. pg_get_expr takes the
    // expression and the table that its columns belong to, and returns a palloc'd text.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, index.into());
        if tuple.is_null() {
            return None;
        }
        let mut is_null = true;
        let number = pg_sys::Anum_pg_index_indpred as pg_sys::AttrNumber;
        let expression = pg_sys::SysCacheGetAttr(cache, tuple, number, &mut is_null);
        let text = (!is_null).then(|| {
            let arguments = [Some(expression), Some(table.into())];
            pgrx::direct_function_call_as_datum(pg_sys::pg_get_expr, &arguments)
        });
        let text = text.flatten().map(|text| super::datum::varlena_to_vec(text));
        pg_sys::ReleaseSysCache(tuple);
        text.map(|text| String::from_utf8_lossy(&text).into_owned())
    }
}

fn found(oid: pg_sys::Oid) -> Option<pg_sys::Oid> {
    (oid != pg_sys::InvalidOid).then_some(oid)
}
