//! `to_cbor` and `from_cbor`.

use crate::args::required;
use crate::cbor;
use crate::pg::jsonb::{Jsonb, JsonbOut};
use crate::pg::report::face;
use pgrx::prelude::*;

#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn to_cbor(document: Option<Jsonb<'_>>) -> Vec<u8> {
    face(|| cbor::encode(&required("document", document)?.to_cbor()?))
}

#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn from_cbor(data: Option<&[u8]>) -> JsonbOut {
    face(|| Ok(JsonbOut::parse(&cbor::to_json(required("data", data)?)?)))
}
