//! Plain tables: compiled index descents and one insert, nothing planned.

use super::Open;
use super::check::{LeasesColumns, StepsColumns};
use super::tables::{Entry, From, Lease, Step, Tables};
use crate::args::{END_NAMES, RunId, StepName};
use crate::error::Error;
use crate::pg::rel::Rel;
use crate::pg::scan::{Compare, IndexShape, Key, Order, Row, Scan, View};
use crate::pg::write::{Entries, Partial, Value, Writer};

/// The predicate of `steps_finished_idx`, as Postgres writes it.
const ENDED: &str =
    "(name = ANY (ARRAY['run:complete'::text, 'run:aborted'::text, 'run:cancelled'::text]))";

/// Columns and indexes of a store that can be reached directly.
pub struct Layout {
    steps: StepsColumns,
    by_name: IndexShape,
    by_seq: IndexShape,
    entries: Entries,
    leases: LeasesColumns,
    leases_by_run: IndexShape,
}

impl Layout {
    /// None where anything but the indexes watches the steps, or an index cannot be descended.
    pub fn read(
        steps: &Rel,
        columns: StepsColumns,
        indexes: Vec<IndexShape>,
        leases: &Rel,
        leases_columns: LeasesColumns,
        leases_indexes: Vec<IndexShape>,
    ) -> Option<Self> {
        const COLUMNS: usize = 5;
        // Another column may have a default, which only a planned INSERT fills in.
        if !steps.is_plain()
            || steps.live_columns() != COLUMNS
            || leases.kind() != pgrx::pg_sys::RELKIND_RELATION
        {
            return None;
        }
        let descends = |on: &[_]| {
            let usable = |index: &&IndexShape| index.is_unique() && index.can_descend(on);
            indexes.iter().find(usable).cloned()
        };
        let by_name = descends(&[columns.run_id, columns.name])?;
        let by_seq =
            descends(&[columns.run_id, columns.seq]).filter(IndexShape::is_in_byte_order)?;
        let leases_by_run = leases_indexes
            .into_iter()
            .find(|index| index.is_unique() && index.can_descend(&[leases_columns.run_id]))?;
        let ended = Partial { column: columns.name, values: &END_NAMES, predicate: ENDED };
        let entries = Entries::read(steps, ended);
        Some(Self {
            steps: columns,
            by_name,
            by_seq,
            entries,
            leases: leases_columns,
            leases_by_run,
        })
    }
}

/// The tables during one call. Scans are begun when first needed and then aimed again.
pub struct Direct<'o> {
    layout: &'o Layout,
    open: &'o Open,
    view: View,
    by_name: Option<Scan<'o>>,
    by_seq: Option<Scan<'o>>,
    leases: Option<Scan<'o>>,
    writer: Option<Writer<'o>>,
}

impl<'o> Direct<'o> {
    pub fn new(layout: &'o Layout, open: &'o Open, view: View) -> Self {
        Self { layout, open, view, by_name: None, by_seq: None, leases: None, writer: None }
    }

    /// The row of that name, read by `read` while the scan stands on it.
    fn by_name<T>(
        &mut self,
        run: RunId<'_>,
        name: StepName<'_>,
        read: impl Fn(&StepsColumns, Row<'_>) -> T,
    ) -> Option<T> {
        let (layout, open, view) = (self.layout, self.open, self.view);
        let scan =
            self.by_name.get_or_insert_with(|| Scan::begin(&open.steps, &layout.by_name, view));
        let keys =
            [Key::Text(Compare::Equal, run.bytes()), Key::Text(Compare::Equal, name.bytes())];
        let mut found = None;
        scan.each(&keys, Order::Ascending, |row| {
            found = Some(read(&layout.steps, row));
            false
        });
        found
    }

    fn by_seq(&mut self) -> &mut Scan<'o> {
        let (layout, open, view) = (self.layout, self.open, self.view);
        self.by_seq.get_or_insert_with(|| Scan::begin(&open.steps, &layout.by_seq, view))
    }
}

impl Tables for Direct<'_> {
    fn position(&mut self, run: RunId<'_>, name: StepName<'_>) -> Option<i64> {
        self.by_name(run, name, seq)
    }

    fn find(&mut self, run: RunId<'_>, name: StepName<'_>) -> Option<Step> {
        self.by_name(run, name, |columns, row| Step {
            seq: seq(columns, row),
            data: row.bytes(columns.data).expect("data is NOT NULL"),
            recorded_at: row.int8(columns.recorded_at),
        })
    }

    fn last(&mut self, run: RunId<'_>) -> Option<i64> {
        let columns = &self.layout.steps;
        let mut last = None;
        self.by_seq().each(&[Key::Text(Compare::Equal, run.bytes())], Order::Descending, |row| {
            last = Some(seq(columns, row));
            false
        });
        last
    }

    fn append(
        &mut self,
        run: RunId<'_>,
        seq: i64,
        name: StepName<'_>,
        data: &[u8],
        recorded_at: i64,
    ) -> Result<(), Error> {
        let columns = &self.layout.steps;
        let (open, entries) = (self.open, &self.layout.entries);
        let row = [
            (columns.run_id, Value::Bytes(run.bytes())),
            (columns.seq, Value::Int8(seq)),
            (columns.name, Value::Bytes(name.bytes())),
            (columns.data, Value::Bytes(data)),
            (columns.recorded_at, Value::Int8(recorded_at)),
        ];
        self.writer.get_or_insert_with(|| Writer::new(&open.steps, entries)).insert(&row);
        Ok(())
    }

    fn page(
        &mut self,
        run: RunId<'_>,
        after: i64,
        max_rows: usize,
        max_bytes: usize,
    ) -> Vec<Entry> {
        let columns = &self.layout.steps;
        let keys = [Key::Text(Compare::Equal, run.bytes()), Key::Int8(Compare::Above, after)];
        let (mut page, mut bytes) = (Vec::new(), 0);
        self.by_seq().each(&keys, Order::Ascending, |row| {
            bytes += row.size(columns.data);
            if !page.is_empty() && bytes > max_bytes {
                return false;
            }
            page.push(Entry {
                seq: seq(columns, row),
                name: row.bytes(columns.name).expect("name is NOT NULL"),
                data: row.bytes(columns.data).expect("data is NOT NULL"),
                recorded_at: row.int8(columns.recorded_at),
            });
            pgrx::check_for_interrupts!();
            page.len() < max_rows
        });
        page
    }

    fn next_run(&mut self, from: From<'_>) -> Option<Vec<u8>> {
        let columns = &self.layout.steps;
        let key = match from {
            From::At(id) => Key::Text(Compare::From, id),
            From::Behind(id) => Key::Text(Compare::Above, id),
        };
        let mut run = None;
        self.by_seq().each(&[key], Order::Ascending, |row| {
            run = row.bytes(columns.run_id);
            false
        });
        run
    }

    fn lease(&mut self, run: RunId<'_>) -> Result<Option<Lease>, Error> {
        let (layout, open, view) = (self.layout, self.open, self.view);
        let table = open.leases()?;
        let scan =
            self.leases.get_or_insert_with(|| Scan::begin(table, &layout.leases_by_run, view));
        let mut lease = None;
        scan.each(&[Key::Text(Compare::Equal, run.bytes())], Order::Ascending, |row| {
            lease = Some(Lease {
                held: row.size(layout.leases.holder) > 0,
                expiry: row.int8(layout.leases.expiry).expect("expiry is NOT NULL"),
            });
            false
        });
        Ok(lease)
    }
}

fn seq(columns: &StepsColumns, row: Row<'_>) -> i64 {
    row.int8(columns.seq).expect("seq is NOT NULL")
}
