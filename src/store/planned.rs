//! Tables with triggers, checks, partitions and the like: the same work through planned statements.

use super::Store;
use super::tables::{Entry, From, Lease, Step, Tables};
use crate::args::{RunId, StepName};
use crate::error::Error;
use crate::pg::scan::View;
use crate::pg::spi::{Cell, Param};
use crate::statement::Statement;

pub struct Planned<'s> {
    store: &'s Store,
    view: View,
}

impl<'s> Planned<'s> {
    pub fn new(store: &'s Store, view: View) -> Self {
        Self { store, view }
    }

    fn rows(&self, statement: Statement, params: &[Param<'_>]) -> Vec<Vec<Cell>> {
        self.store.execute(statement, params, self.view).rows
    }

    fn row(&self, statement: Statement, params: &[Param<'_>]) -> Option<Vec<Cell>> {
        self.rows(statement, params).into_iter().next()
    }

    /// The last position of a page, by the sizes alone; both statements see the same snapshot.
    fn page_end(
        &self,
        run: RunId<'_>,
        after: i64,
        max_rows: usize,
        max_bytes: usize,
    ) -> Option<i64> {
        let params = [Param::Text(run.bytes()), Param::Int8(after), Param::Int8(max_rows as i64)];
        let (mut end, mut bytes) = (None, 0);
        for row in self.rows(Statement::PageSizes, &params) {
            let [seq, size] = columns(row);
            bytes += size.int8().expect("data is NOT NULL") as usize;
            if end.is_some() && bytes > max_bytes {
                break;
            }
            end = seq.int8();
        }
        end
    }
}

impl Tables for Planned<'_> {
    fn position(&mut self, run: RunId<'_>, name: StepName<'_>) -> Option<i64> {
        let params = [Param::Text(run.bytes()), Param::Text(name.bytes())];
        self.row(Statement::Position, &params).and_then(|row| row[0].int8())
    }

    fn find(&mut self, run: RunId<'_>, name: StepName<'_>) -> Option<Step> {
        let params = [Param::Text(run.bytes()), Param::Text(name.bytes())];
        self.row(Statement::Find, &params).map(|row| {
            let [seq, data, recorded_at] = columns(row);
            Step {
                seq: seq.int8().expect("seq is NOT NULL"),
                data: data.into_bytes().expect("data is NOT NULL"),
                recorded_at: recorded_at.int8(),
            }
        })
    }

    fn last(&mut self, run: RunId<'_>) -> Option<i64> {
        self.row(Statement::Last, &[Param::Text(run.bytes())]).and_then(|row| row[0].int8())
    }

    fn append(
        &mut self,
        run: RunId<'_>,
        seq: i64,
        name: StepName<'_>,
        data: &[u8],
        recorded_at: i64,
    ) -> Result<(), Error> {
        let params = [
            Param::Text(run.bytes()),
            Param::Int8(seq),
            Param::Text(name.bytes()),
            Param::Bytea(data),
            Param::Timestamptz(recorded_at),
        ];
        // A trigger that drops the row, or changes it, must not let us promise what is stored.
        match self.row(Statement::Append, &params) {
            Some(row) if row[0].int8() == Some(seq) => Ok(()),
            _ => Err(Error::InsertSuppressed { relation: self.store.names.steps.clone() }),
        }
    }

    fn page(
        &mut self,
        run: RunId<'_>,
        after: i64,
        max_rows: usize,
        max_bytes: usize,
    ) -> Vec<Entry> {
        let Some(end) = self.page_end(run, after, max_rows, max_bytes) else {
            return Vec::new();
        };
        let params = [Param::Text(run.bytes()), Param::Int8(after), Param::Int8(end)];
        self.rows(Statement::Page, &params)
            .into_iter()
            .map(|row| {
                let [seq, name, data, recorded_at] = columns(row);
                Entry {
                    seq: seq.int8().expect("seq is NOT NULL"),
                    name: name.into_bytes().expect("name is NOT NULL"),
                    data: data.into_bytes().expect("data is NOT NULL"),
                    recorded_at: recorded_at.int8(),
                }
            })
            .collect()
    }

    fn next_run(&mut self, from: From<'_>) -> Option<Vec<u8>> {
        let (statement, id) = match from {
            From::At(id) => (Statement::RunAt, id),
            From::Behind(id) => (Statement::RunBehind, id),
        };
        let [run] = columns(self.row(statement, &[Param::Text(id)])?);
        run.into_bytes()
    }

    fn lease(&mut self, run: RunId<'_>) -> Result<Option<Lease>, Error> {
        let row = self.row(Statement::Lease, &[Param::Text(run.bytes())]);
        Ok(row.map(|row| {
            let [holder, expiry] = columns(row);
            Lease {
                held: holder.into_bytes().is_some_and(|holder| !holder.is_empty()),
                expiry: expiry.int8().expect("expiry is NOT NULL"),
            }
        }))
    }
}

fn columns<const N: usize>(row: Vec<Cell>) -> [Cell; N] {
    row.try_into().expect("a statement returns the columns that it names")
}
