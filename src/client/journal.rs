//! The journal's functions, as async methods.

use super::Error;
use super::retry::{Retry, until};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, SystemTime};
use tokio_postgres::types::{Json, ToSql};
use tokio_postgres::{Client, Row};

/// The default store's journal over one connection. Cheap to make: hold none, make one where needed.
///
/// The connection must be in autocommit: the server refuses writing calls inside a transaction block.
#[derive(Clone, Copy)]
pub struct Journal<'c> {
    client: &'c Client,
    within: Option<Duration>,
}

/// What became of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inserted<T = Vec<u8>> {
    /// The step's position in its run: 0, 1, 2 …
    pub seq: i64,
    /// True: this call recorded it.
    pub inserted: bool,
    /// What was recorded before under this name, when `inserted` is false.
    pub stored: Option<T>,
}

/// A recorded step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub seq: i64,
    pub data: Vec<u8>,
    pub recorded_at: Option<SystemTime>,
}

/// A step of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub seq: i64,
    pub name: String,
    pub data: Vec<u8>,
    pub recorded_at: Option<SystemTime>,
}

/// Which runs a listing admits; the default admits all.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Ids that begin with exactly these bytes.
    pub prefix: String,
    /// Runs that hold none of these entries.
    pub exclude_holding: Vec<String>,
    /// Runs whose lease has lapsed, or that nobody holds and that are due.
    pub lease_lapsed: bool,
}

impl<'c> Journal<'c> {
    pub fn new(client: &'c Client) -> Self {
        Self { client, within: None }
    }

    /// Every call, retries included, ends within this time; without it only the server's timeouts end it.
    pub fn within(self, time: Duration) -> Self {
        Self { within: Some(time), ..self }
    }

    async fn rows(
        &self,
        retry: Retry,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        until(self.within, retry, || self.client.query(sql, params)).await
    }

    async fn optional(
        &self,
        retry: Retry,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, Error> {
        until(self.within, retry, || self.client.query_opt(sql, params)).await
    }

    async fn one(
        &self,
        retry: Retry,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, Error> {
        until(self.within, retry, || self.client.query_one(sql, params)).await
    }

    /// Records `data` as step `name` of `run` unless the name is taken.
    ///
    /// After an error of kind `Storage` the step is recorded whole or not at all: call again with the
    /// same bytes.
    pub async fn insert(&self, run: &str, name: &str, data: &[u8]) -> Result<Inserted, Error> {
        const SQL: &str = "SELECT seq, inserted, stored FROM bide.insert($1, $2, $3)";
        let row = self.one(Retry::AlsoTakenPositions, SQL, &[&run, &name, &data]).await?;
        inserted(&row)
    }

    /// The same for a value that is kept as JSON; `stored` is what the step holds.
    pub async fn insert_json<T>(
        &self,
        run: &str,
        name: &str,
        value: &T,
    ) -> Result<Inserted<T>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        const SQL: &str = "SELECT seq, inserted, stored FROM bide.insert_json($1, $2, $3)";
        let value = serde_json::to_value(value).map_err(|source| Error::Encode { source })?;
        let value = Json(value);
        let row = self.one(Retry::AlsoTakenPositions, SQL, &[&run, &name, &value]).await?;
        let Inserted { seq, inserted, stored } = inserted::<Json<serde_json::Value>>(&row)?;
        let stored = stored
            .map(|Json(value)| serde_json::from_value(value))
            .transpose()
            .map_err(|source| Error::Decode { source })?;
        Ok(Inserted { seq, inserted, stored })
    }

    /// Records many steps of one run in one commit, all or none; position and whether it was recorded
    /// by this call, in the order given.
    pub async fn insert_many(
        &self,
        run: &str,
        steps: &[(&str, &[u8])],
    ) -> Result<Vec<(i64, bool)>, Error> {
        const SQL: &str = "SELECT seq, inserted FROM bide.insert_many($1, $2, $3)";
        let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
        let data: Vec<&[u8]> = steps.iter().map(|(_, data)| *data).collect();
        let rows = self.rows(Retry::AlsoTakenPositions, SQL, &[&run, &names, &data]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// One step by its name.
    pub async fn get(&self, run: &str, name: &str) -> Result<Option<Step>, Error> {
        const SQL: &str = "SELECT seq, data, recorded_at FROM bide.get($1, $2)";
        let row = self.optional(Retry::Transient, SQL, &[&run, &name]).await?;
        row.map(|row| {
            Ok(Step { seq: row.try_get(0)?, data: row.try_get(1)?, recorded_at: row.try_get(2)? })
        })
        .transpose()
    }

    /// The steps behind position `after`, -1 for all: one page. Only an empty page is the end, for a
    /// page also ends at 8 MB of payload.
    pub async fn load(&self, run: &str, after: i64, max_rows: i32) -> Result<Vec<Entry>, Error> {
        const SQL: &str = "SELECT seq, name, data, recorded_at FROM bide.load($1, $2, $3)";
        let rows = self.rows(Retry::Transient, SQL, &[&run, &after, &max_rows]).await?;
        rows.iter()
            .map(|row| {
                Ok(Entry {
                    seq: row.try_get(0)?,
                    name: row.try_get(1)?,
                    data: row.try_get(2)?,
                    recorded_at: row.try_get(3)?,
                })
            })
            .collect()
    }

    /// All steps of a run, page by page; nothing is held between pages.
    pub async fn load_all(&self, run: &str) -> Result<Vec<Entry>, Error> {
        const PAGE_ROWS: i32 = 256;
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let page = self.load(run, all.last().map_or(-1, |entry| entry.seq), PAGE_ROWS).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// Ids of runs in byte order behind `after`, "" for the first page.
    pub async fn runs(
        &self,
        after: &str,
        filter: &RunFilter,
        max_rows: i32,
    ) -> Result<Vec<String>, Error> {
        const SQL: &str = "SELECT run_id FROM bide.runs($1, $2, $3, $4, $5)";
        let RunFilter { prefix, exclude_holding, lease_lapsed } = filter;
        let rows = self
            .rows(
                Retry::Transient,
                SQL,
                &[&after, prefix, exclude_holding, lease_lapsed, &max_rows],
            )
            .await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Deletes a finished run, any run by `force`; returns the number of steps.
    pub async fn purge_run(&self, run: &str, force: bool) -> Result<i64, Error> {
        const SQL: &str = "SELECT bide.purge_run($1, $2)";
        Ok(self.one(Retry::Transient, SQL, &[&run, &force]).await?.try_get(0)?)
    }

    /// Deletes up to `max_runs` runs that ended before `before`; returns the number of runs.
    pub async fn purge_finished(&self, before: SystemTime, max_runs: i32) -> Result<i64, Error> {
        const SQL: &str = "SELECT bide.purge_finished($1, $2)";
        Ok(self.one(Retry::Transient, SQL, &[&before, &max_runs]).await?.try_get(0)?)
    }

    /// An error unless the tables have the version that the application was written for.
    pub async fn check_schema(&self, expected: i32) -> Result<(), Error> {
        const SQL: &str = "SELECT bide.check_schema($1)";
        self.one(Retry::Transient, SQL, &[&expected]).await?;
        Ok(())
    }
}

fn inserted<T>(row: &Row) -> Result<Inserted<T>, Error>
where
    T: for<'r> tokio_postgres::types::FromSql<'r>,
{
    Ok(Inserted { seq: row.try_get(0)?, inserted: row.try_get(1)?, stored: row.try_get(2)? })
}
