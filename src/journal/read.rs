//! Reading: no lock, no transaction id, the snapshot of the calling statement.

use crate::args::{PAGE_BYTES_MAX, RunId, StepName};
use crate::error::Error;
use crate::pg::call::clock;
use crate::pg::scan::View;
use crate::store::{Entry, From, Open, Step};

/// The step of that name.
pub fn get(open: &Open, run: RunId<'_>, name: StepName<'_>) -> Result<Option<Step>, Error> {
    Ok(open.tables(View::Caller).find(run, name))
}

/// The steps behind position `after`: a prefix of what the run will ever hold there.
pub fn load(open: &Open, run: RunId<'_>, after: i64, max_rows: usize) -> Result<Vec<Entry>, Error> {
    Ok(open.tables(View::Caller).page(run, after, max_rows, PAGE_BYTES_MAX))
}

/// Which runs a listing admits.
pub struct Filter<'a> {
    pub after: &'a [u8],
    pub prefix: &'a [u8],
    pub excluded: &'a [StepName<'a>],
    pub lease_lapsed: bool,
}

/// Runs in byte order. One descent a run looked at, whatever number of steps it has.
pub fn runs(open: &Open, filter: &Filter<'_>, max_rows: usize) -> Result<Vec<Vec<u8>>, Error> {
    let mut tables = open.tables(View::Caller);
    let now = clock();
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut next = tables.next_run(if filter.after < filter.prefix {
        From::At(filter.prefix)
    } else {
        From::Behind(filter.after)
    });
    while let Some(run) = next {
        pgrx::check_for_interrupts!();
        // In byte order the ids with a prefix stand together: the first without it ends them.
        if !run.starts_with(filter.prefix) {
            break;
        }
        let id = RunId::stored(&run);
        let excluded = filter.excluded.iter().any(|name| tables.position(id, *name).is_some());
        let admitted = !excluded
            && (!filter.lease_lapsed || tables.lease(id)?.is_some_and(|lease| lease.is_over(now)));
        let page_is_full = admitted && found.len() + 1 == max_rows;
        next = if page_is_full { None } else { tables.next_run(From::Behind(&run)) };
        if admitted {
            found.push(run);
        }
    }
    Ok(found)
}
