//! Purge: the one thing that deletes steps, a run at a time and never half a run.
//!
//! Lock order: run locks in ascending byte order, then lease rows in the same order.

use crate::args::RunId;
use crate::error::Error;
use crate::pg::lock::RunLock;
use crate::pg::scan::View;
use crate::pg::spi::Param;
use crate::statement::Statement;
use crate::store::Open;

/// Deletes a run, its lease row too; returns the number of steps.
pub fn run(open: &Open, run: RunId<'_>, force: bool) -> Result<i64, Error> {
    let lock = RunLock::acquire(open.steps_oid(), run.bytes())?;
    let mut tables = open.tables(View::Fresh);
    let exists = tables.last(run).is_some();
    if exists && !force && !is_finished(open, run) {
        return Err(Error::RunUnfinished { run: run.display() });
    }
    if !exists && !force {
        lock.release();
        return Ok(0);
    }
    Ok(delete(open, run))
}

/// Deletes runs that ended before `before`, the longest ended first; returns the number of runs.
///
/// A run whose lock somebody has is passed over: another call gets it, and nobody waits while it
/// holds the locks of up to a thousand runs.
pub fn finished(open: &Open, before: i64, max_runs: usize) -> Result<i64, Error> {
    let params = [Param::Timestamptz(before), Param::Int8(max_runs as i64)];
    let mut runs: Vec<Vec<u8>> = open
        .execute(Statement::FinishedBefore, &params, View::Fresh)
        .rows
        .into_iter()
        .flatten()
        .filter_map(|cell| cell.into_bytes())
        .collect();
    runs.sort_unstable();
    runs.dedup();
    let mut purged = 0;
    for run in &runs {
        pgrx::check_for_interrupts!();
        let run = RunId::stored(run);
        if let Some(_kept) = RunLock::try_acquire(open.steps_oid(), run.bytes())?
            // Another purge may have been here, and the id used again.
            && is_finished(open, run)
        {
            delete(open, run);
            purged += 1;
        }
    }
    Ok(purged)
}

fn is_finished(open: &Open, run: RunId<'_>) -> bool {
    !open.execute(Statement::IsFinished, &[Param::Text(run.bytes())], View::Fresh).rows.is_empty()
}

fn delete(open: &Open, run: RunId<'_>) -> i64 {
    let run = [Param::Text(run.bytes())];
    let steps = open.execute(Statement::DeleteSteps, &run, View::Fresh).processed;
    open.execute(Statement::DeleteLease, &run, View::Fresh);
    steps as i64
}
