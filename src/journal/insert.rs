//! Insert: a step is recorded at most once, at the next position of its run.
//!
//! Holds at every commit: a run's positions are 0..n without a gap, in commit order; a stored
//! (run, name) never changes. Lock order: run lock, then lease row; this takes one run lock only.
//!
//! The order of work: take the run lock if it is free; else look for the name first, so that a resend of
//! a recorded step waits for nobody, and then wait for the lock. Under the lock: look for the name, for
//! an insert in flight has ended by now; read the last position; write. All reads after the lock show
//! what is committed at that moment, at every isolation level. The lock is kept until the commit is
//! complete, so the next writer of the run sees this step; a name that is taken gives it back at once.

use crate::args::{RunId, StepName};
use crate::error::Error;
use crate::pg::call::clock;
use crate::pg::lock::RunLock;
use crate::pg::scan::View;
use crate::store::{Open, Step};
use std::collections::HashMap;

/// What became of an insert.
pub struct Inserted {
    pub seq: i64,
    pub inserted: bool,
    /// The bytes that were there already, when it was not inserted.
    pub stored: Option<Vec<u8>>,
}

impl Inserted {
    fn taken(step: Step) -> Self {
        Self { seq: step.seq, inserted: false, stored: Some(step.data) }
    }
}

/// Records the step unless its name is taken.
pub fn insert(
    open: &Open,
    run: RunId<'_>,
    name: StepName<'_>,
    data: &[u8],
) -> Result<Inserted, Error> {
    let mut tables = open.tables(View::Fresh);
    let lock = match RunLock::try_acquire(open.steps_oid(), run.bytes()) {
        Ok(Some(lock)) => lock,
        // Busy, or more than the transaction may hold: a recorded step is answered all the same.
        busy => {
            if let Some(step) = tables.find(run, name) {
                return Ok(Inserted::taken(step));
            }
            busy?;
            RunLock::acquire(open.steps_oid(), run.bytes())?
        }
    };
    let last = tables.last(run);
    // A run without steps holds no name: that saves its first insert a descent.
    if last.is_some()
        && let Some(step) = tables.find(run, name)
    {
        lock.release();
        return Ok(Inserted::taken(step));
    }
    let seq = behind(run, last)?;
    tables.append(run, seq, name, data, clock())?;
    Ok(Inserted { seq, inserted: true, stored: None })
}

/// Records each step whose name is free, all or none; position and whether it was inserted, in order.
pub fn insert_many(
    open: &Open,
    run: RunId<'_>,
    steps: &[(StepName<'_>, &[u8])],
) -> Result<Vec<(i64, bool)>, Error> {
    let mut tables = open.tables(View::Fresh);
    // What each name has been found at, or written at by this call.
    let mut known: HashMap<&[u8], i64> = HashMap::with_capacity(steps.len());
    let lock = match RunLock::try_acquire(open.steps_oid(), run.bytes()) {
        Ok(Some(lock)) => lock,
        busy => {
            for (name, _) in steps {
                if let Some(seq) = tables.position(run, *name) {
                    known.insert(name.bytes(), seq);
                }
            }
            let taken: Option<Vec<_>> =
                steps.iter().map(|(name, _)| Some((*known.get(name.bytes())?, false))).collect();
            if let Some(taken) = taken {
                return Ok(taken);
            }
            busy?;
            // A purge may have ended meanwhile: what was found before the lock counts no more.
            known.clear();
            RunLock::acquire(open.steps_oid(), run.bytes())?
        }
    };
    let last = tables.last(run);
    let mut seq = behind(run, last)?;
    let recorded_at = clock();
    let mut wrote = false;
    let mut positions = Vec::with_capacity(steps.len());
    for (name, data) in steps {
        pgrx::check_for_interrupts!();
        // A name that stands twice in the call is found too: the first wins.
        let taken = known.get(name.bytes()).copied().or_else(|| {
            last?;
            tables.position(run, *name)
        });
        if let Some(taken) = taken {
            positions.push((taken, false));
            continue;
        }
        tables.append(run, seq, *name, data, recorded_at)?;
        known.insert(name.bytes(), seq);
        positions.push((seq, true));
        seq = behind(run, Some(seq))?;
        wrote = true;
    }
    if !wrote {
        lock.release();
    }
    Ok(positions)
}

/// The run's next position, under its lock, which stays: for an INSERT by the tables' owner.
pub fn next_seq(open: &Open, run: RunId<'_>) -> Result<i64, Error> {
    let _kept = RunLock::acquire(open.steps_oid(), run.bytes())?;
    behind(run, open.tables(View::Fresh).last(run))
}

/// The position behind `last`; 0 in a run without steps.
fn behind(run: RunId<'_>, last: Option<i64>) -> Result<i64, Error> {
    last.map_or(Some(0), |last| last.checked_add(1))
        .ok_or_else(|| Error::PositionsExhausted { run: run.display() })
}
