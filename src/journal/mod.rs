//! The journal's functions. They validate, call one function, and map the error; they decide nothing.

mod insert;
mod purge;
mod read;

use crate::args::{self, PAGE_ROWS_MAX, PURGE_RUNS_MAX, RunId, StepName};
use crate::error::Error;
use crate::guc;
use crate::pg::call::{Block, Call, prepare_to_write};
use crate::pg::datum::{
    ByteaArray, Json, JsonOut, Text, TextArray, TextOut, server_to_utf8, stored_json,
};
use crate::pg::rel::Use;
use crate::pg::report::face;
use crate::pg::row::InsertedRow;
use crate::store::Open;
use insert::Inserted;
use pgrx::datum::TimestampWithTimeZone;
use pgrx::iter::TableIterator;
use pgrx::prelude::*;

/// What a writing call does before anything else: no lock is taken, nobody is made to wait.
fn open_to_write(
    function: &'static str,
    store: Option<Text<'_>>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Result<Open, Error> {
    prepare_to_write(function, Block::BySetting)?;
    Open::new(Call::new(fcinfo), store, Use::Write)
}

/// The arguments that `insert` and `insert_json` share.
struct InsertArguments<'a> {
    run_id: Option<Text<'a>>,
    name: Option<Text<'a>>,
    fence: Option<i64>,
    publish: Option<Text<'a>>,
    wake: Option<bool>,
    store: Option<Text<'a>>,
    fcinfo: pg_sys::FunctionCallInfo,
}

impl<'a> InsertArguments<'a> {
    fn record(
        self,
        function: &'static str,
        data: Option<&[u8]>,
    ) -> Result<(RunId<'a>, StepName<'a>, Inserted), Error> {
        let run = RunId::arg("run_id", self.run_id.map(|text| text.0))?;
        let name = StepName::arg("name", self.name.map(|text| text.0))?;
        let data = args::payload("data", data, guc::data_bytes_max())?;
        args::fence(self.fence)?;
        args::only_default("publish", self.publish.map(|topic| topic.0), b"", "''")?;
        args::only_default("wake", self.wake, false, "false")?;
        let open = open_to_write(function, self.store, self.fcinfo)?;
        Ok((run, name, insert::insert(&open, run, name, data)?))
    }
}

#[allow(clippy::too_many_arguments, reason = "the SQL signature")]
#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn insert(
    run_id: Option<Text<'_>>,
    name: Option<Text<'_>>,
    data: Option<&[u8]>,
    fence: default!(Option<i64>, 0),
    publish: default!(Option<Text<'_>>, "''"),
    wake: default!(Option<bool>, false),
    store: default!(Option<Text<'_>>, "'bide'"),
    fcinfo: pg_sys::FunctionCallInfo,
) -> InsertedRow<Vec<u8>> {
    let arguments = InsertArguments { run_id, name, fence, publish, wake, store, fcinfo };
    face(|| {
        let (_, _, Inserted { seq, inserted, stored }) = arguments.record("insert", data)?;
        Ok(InsertedRow { seq, inserted, stored })
    })
}

#[allow(clippy::too_many_arguments, reason = "the SQL signature")]
#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn insert_json(
    run_id: Option<Text<'_>>,
    name: Option<Text<'_>>,
    data: Option<Json<'_>>,
    fence: default!(Option<i64>, 0),
    publish: default!(Option<Text<'_>>, "''"),
    wake: default!(Option<bool>, false),
    store: default!(Option<Text<'_>>, "'bide'"),
    fcinfo: pg_sys::FunctionCallInfo,
) -> InsertedRow<JsonOut> {
    let arguments = InsertArguments { run_id, name, fence, publish, wake, store, fcinfo };
    face(|| {
        let data = data.map(|json| server_to_utf8(json.0));
        let (run, name, Inserted { seq, inserted, stored }) =
            arguments.record("insert_json", data.as_deref())?;
        let stored = match stored {
            None => None,
            Some(bytes) => Some(stored_json(&bytes).ok_or_else(|| Error::StoredNotJson {
                run: run.display(),
                name: name.display(),
            })?),
        };
        Ok(InsertedRow { seq, inserted, stored })
    })
}

#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn insert_many(
    run_id: Option<Text<'_>>,
    names: Option<TextArray<'_>>,
    data: Option<ByteaArray<'_>>,
    fence: default!(Option<i64>, 0),
    store: default!(Option<Text<'_>>, "'bide'"),
    fcinfo: pg_sys::FunctionCallInfo,
) -> TableIterator<'static, (name!(name, TextOut), name!(seq, i64), name!(inserted, bool))> {
    face(|| {
        let run = RunId::arg("run_id", run_id.map(|text| text.0))?;
        let names = names.map(|array| array.0);
        let steps = args::steps(names, data.map(|array| array.0), guc::data_bytes_max())?;
        args::fence(fence)?;
        let open = open_to_write("insert_many", store, fcinfo)?;
        let positions = insert::insert_many(&open, run, &steps)?;
        let rows: Vec<_> = steps
            .iter()
            .zip(positions)
            .map(|((name, _), (seq, inserted))| (TextOut(name.bytes().to_vec()), seq, inserted))
            .collect();
        Ok(TableIterator::new(rows))
    })
}

#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn next_seq(
    run_id: Option<Text<'_>>,
    store: default!(Option<Text<'_>>, "'bide'"),
    fcinfo: pg_sys::FunctionCallInfo,
) -> i64 {
    face(|| {
        let run = RunId::arg("run_id", run_id.map(|text| text.0))?;
        insert::next_seq(&open_to_write("next_seq", store, fcinfo)?, run)
    })
}

#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn get(
    run_id: Option<Text<'_>>,
    name: Option<Text<'_>>,
    store: default!(Option<Text<'_>>, "'bide'"),
    fcinfo: pg_sys::FunctionCallInfo,
) -> TableIterator<
    'static,
    (name!(seq, i64), name!(data, Vec<u8>), name!(recorded_at, Option<TimestampWithTimeZone>)),
> {
    face(|| {
        let run = RunId::arg("run_id", run_id.map(|text| text.0))?;
        let name = StepName::arg("name", name.map(|text| text.0))?;
        let open = Open::new(Call::new(fcinfo), store, Use::Read)?;
        let step = read::get(&open, run, name)?;
        Ok(TableIterator::new(
            step.map(|step| (step.seq, step.data, step.recorded_at.map(timestamp))),
        ))
    })
}

#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn load(
    run_id: Option<Text<'_>>,
    after: default!(Option<i64>, -1),
    max_rows: default!(Option<i32>, 256),
    store: default!(Option<Text<'_>>, "'bide'"),
    fcinfo: pg_sys::FunctionCallInfo,
) -> TableIterator<
    'static,
    (
        name!(seq, i64),
        name!(name, TextOut),
        name!(data, Vec<u8>),
        name!(recorded_at, Option<TimestampWithTimeZone>),
    ),
> {
    face(|| {
        let run = RunId::arg("run_id", run_id.map(|text| text.0))?;
        let after = args::required("after", after)?;
        let max_rows = args::limit("max_rows", max_rows, PAGE_ROWS_MAX)?;
        let open = Open::new(Call::new(fcinfo), store, Use::Read)?;
        let page = read::load(&open, run, after, max_rows)?;
        Ok(TableIterator::new(page.into_iter().map(|entry| {
            let recorded_at = entry.recorded_at.map(timestamp);
            (entry.seq, TextOut(entry.name), entry.data, recorded_at)
        })))
    })
}

#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn runs(
    after: default!(Option<Text<'_>>, "''"),
    prefix: default!(Option<Text<'_>>, "''"),
    exclude_holding: default!(Option<TextArray<'_>>, "'{}'"),
    lease_lapsed: default!(Option<bool>, false),
    max_rows: default!(Option<i32>, 500),
    store: default!(Option<Text<'_>>, "'bide'"),
    fcinfo: pg_sys::FunctionCallInfo,
) -> TableIterator<'static, (name!(run_id, TextOut),)> {
    face(|| {
        let after = args::optional_id("after", after.map(|text| text.0))?;
        let prefix = args::optional_id("prefix", prefix.map(|text| text.0))?;
        let excluded = args::elements("exclude_holding", exclude_holding.map(|array| array.0))?
            .into_iter()
            .map(|name| StepName::arg("exclude_holding", Some(name)))
            .collect::<Result<Vec<_>, _>>()?;
        let lease_lapsed = args::required("lease_lapsed", lease_lapsed)?;
        let max_rows = args::limit("max_rows", max_rows, PAGE_ROWS_MAX)?;
        let open = Open::new(Call::new(fcinfo), store, Use::Read)?;
        let filter = read::Filter { after, prefix, excluded: &excluded, lease_lapsed };
        let runs = read::runs(&open, &filter, max_rows)?;
        Ok(TableIterator::new(runs.into_iter().map(|run| (TextOut(run),))))
    })
}

#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn purge_run(
    run_id: Option<Text<'_>>,
    force: default!(Option<bool>, false),
    store: default!(Option<Text<'_>>, "'bide'"),
    fcinfo: pg_sys::FunctionCallInfo,
) -> i64 {
    face(|| {
        let run = RunId::arg("run_id", run_id.map(|text| text.0))?;
        let force = args::required("force", force)?;
        purge::run(&open_to_write("purge_run", store, fcinfo)?, run, force)
    })
}

#[pg_extern(schema = "bide", volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
fn purge_finished(
    before: Option<TimestampWithTimeZone>,
    max_runs: default!(Option<i32>, 1000),
    store: default!(Option<Text<'_>>, "'bide'"),
    fcinfo: pg_sys::FunctionCallInfo,
) -> i64 {
    face(|| {
        let before = args::required("before", before)?;
        let max_runs = args::limit("max_runs", max_runs, PURGE_RUNS_MAX)?;
        let open = open_to_write("purge_finished", store, fcinfo)?;
        purge::finished(&open, before.into(), max_runs)
    })
}

fn timestamp(microseconds: i64) -> TimestampWithTimeZone {
    // Infinite values cannot come from a clock, but a row may have been made by hand: pgrx keeps them.
    TimestampWithTimeZone::try_from(microseconds)
        .unwrap_or_else(|_| TimestampWithTimeZone::positive_infinity())
}
