//! What the journal asks of its tables, however they are reached.

use crate::args::{RunId, StepName};
use crate::error::Error;

/// A stored step, found by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub seq: i64,
    pub data: Vec<u8>,
    pub recorded_at: Option<i64>,
}

/// A row of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub seq: i64,
    pub name: Vec<u8>,
    pub data: Vec<u8>,
    pub recorded_at: Option<i64>,
}

/// What `runs` needs of a lease row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub held: bool,
    pub expiry: i64,
}

impl Lease {
    /// Lapsed or due at `now`. A lease that ends at this very moment is still live (C-69); a run that
    /// nobody holds is due at its time.
    pub fn is_over(self, now: i64) -> bool {
        if self.held { self.expiry < now } else { self.expiry <= now }
    }
}

/// Where `next_run` starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From<'a> {
    /// At this id, if there is such a run.
    At(&'a [u8]),
    /// Behind it.
    Behind(&'a [u8]),
}

/// Two implementations, one behaviour: `direct` descends indexes, `planned` runs statements.
pub trait Tables {
    /// Position of the step of that name.
    fn position(&mut self, run: RunId<'_>, name: StepName<'_>) -> Option<i64>;

    /// The step of that name with its payload.
    fn find(&mut self, run: RunId<'_>, name: StepName<'_>) -> Option<Step>;

    /// The run's last position.
    fn last(&mut self, run: RunId<'_>) -> Option<i64>;

    /// Writes a step. The caller holds the run lock and has found `seq` and `name` to be free.
    fn append(
        &mut self,
        run: RunId<'_>,
        seq: i64,
        name: StepName<'_>,
        data: &[u8],
        recorded_at: i64,
    ) -> Result<(), Error>;

    /// Steps behind position `after`, in order: at most `max_rows`, and none more once the payloads
    /// come to `max_bytes`.
    fn page(&mut self, run: RunId<'_>, after: i64, max_rows: usize, max_bytes: usize)
    -> Vec<Entry>;

    /// The first run in byte order.
    fn next_run(&mut self, from: From<'_>) -> Option<Vec<u8>>;

    /// The run's lease row.
    fn lease(&mut self, run: RunId<'_>) -> Result<Option<Lease>, Error>;
}

#[cfg(test)]
mod tests {
    use super::Lease;

    #[test]
    fn a_held_lease_is_live_at_its_end_and_a_due_run_is_due_at_its_time() {
        assert!(!Lease { held: true, expiry: 5 }.is_over(5));
        assert!(Lease { held: true, expiry: 5 }.is_over(6));
        assert!(Lease { held: false, expiry: 5 }.is_over(5));
        assert!(!Lease { held: false, expiry: 6 }.is_over(5));
    }
}
