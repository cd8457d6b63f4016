//! The Rust client against a server: every method with ordinary arguments, payloads byte for byte,
//! refusals as errors of kind `Config`, retries of a writer that skips the run lock.

use bide::client::{Error, Journal, Kind, RunFilter};
use std::time::{Duration, SystemTime};
use tokio_postgres::{Client, NoTls};

async fn connect() -> Client {
    let dsn = std::env::var("BIDE_DSN").expect("BIDE_DSN names the server to test against");
    let (client, connection) = tokio_postgres::connect(&dsn, NoTls).await.expect("connect");
    tokio::spawn(connection);
    client
}

fn run(test: &str) -> String {
    format!("tokio-{test}-{}", std::process::id())
}

#[tokio::test]
async fn a_step_is_recorded_once_and_read_back() {
    let client = connect().await;
    let journal = Journal::new(&client).within(Duration::from_secs(30));
    let run = run("once");
    let all_bytes: Vec<u8> = (0..=255).collect();
    let first = journal.insert(&run, "model:0", &all_bytes).await.unwrap();
    assert_eq!((first.seq, first.inserted, first.stored), (0, true, None));
    let again = journal.insert(&run, "model:0", b"other").await.unwrap();
    assert_eq!((again.seq, again.inserted, again.stored), (0, false, Some(all_bytes.clone())));
    let step = journal.get(&run, "model:0").await.unwrap().unwrap();
    assert_eq!((step.seq, step.data), (0, all_bytes));
    assert!(step.recorded_at.unwrap() <= SystemTime::now() + Duration::from_secs(5));
    assert_eq!(journal.get(&run, "missing").await.unwrap(), None);
}

#[tokio::test]
async fn json_survives_with_every_character() {
    let client = connect().await;
    let journal = Journal::new(&client);
    let run = run("json");
    let value =
        serde_json::json!({"text": "back\\slash \"quote\"\nline\ttab \u{1F980} \u{7f}", "n": 1.5});
    assert!(journal.insert_json(&run, "a", &value).await.unwrap().inserted);
    let again = journal.insert_json(&run, "a", &serde_json::json!(null)).await.unwrap();
    assert_eq!((again.inserted, again.stored), (false, Some(value)));
}

#[tokio::test]
async fn many_steps_come_back_in_order_and_page_by_page() {
    let client = connect().await;
    let journal = Journal::new(&client);
    let run = run("many");
    let names: Vec<String> = (0..600).map(|n| format!("n{n}")).collect();
    let steps: Vec<(&str, &[u8])> =
        names.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
    let positions = journal.insert_many(&run, &steps).await.unwrap();
    assert_eq!(positions, (0..600).map(|n| (n, true)).collect::<Vec<_>>());
    let all = journal.load_all(&run).await.unwrap();
    assert_eq!(all.len(), 600);
    assert!(all.iter().enumerate().all(|(at, entry)| entry.seq == at as i64
        && entry.name == names[at]
        && entry.data == names[at].as_bytes()));
    let filter = RunFilter { prefix: run.clone(), ..RunFilter::default() };
    assert_eq!(journal.runs("", &filter, 10).await.unwrap(), std::slice::from_ref(&run));
    let excluded = RunFilter { exclude_holding: vec!["n7".into()], ..filter };
    assert!(journal.runs("", &excluded, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn only_finished_runs_are_purged() {
    let client = connect().await;
    let journal = Journal::new(&client);
    let run = run("purge");
    journal.insert(&run, "a", b"").await.unwrap();
    let refused = journal.purge_run(&run, false).await.unwrap_err();
    assert_eq!((refused.kind(), refused.sqlstate()), (Kind::Config, Some("55000")));
    journal.insert(&run, "run:complete", b"").await.unwrap();
    assert_eq!(journal.purge_run(&run, false).await.unwrap(), 2);
    journal.check_schema(1).await.unwrap();
    assert_eq!(journal.check_schema(2).await.unwrap_err().sqlstate(), Some("55000"));
}

#[tokio::test]
async fn a_transaction_block_is_refused_with_the_hint() {
    let client = connect().await;
    client.batch_execute("BEGIN").await.unwrap();
    let refused = Journal::new(&client).insert("r", "a", b"").await.unwrap_err();
    assert_eq!((refused.kind(), refused.sqlstate()), (Kind::Config, Some("25001")));
    assert!(refused.to_string().contains("autocommit"), "{refused}");
}

#[tokio::test]
async fn the_deadline_ends_a_wait_for_the_run_lock() {
    let holder = connect().await;
    let run = run("deadline");
    holder.batch_execute("BEGIN; SET LOCAL bide.transaction_block = allow").await.unwrap();
    Journal::new(&holder).insert(&run, "held", b"").await.unwrap();
    let client = connect().await;
    let journal = Journal::new(&client).within(Duration::from_millis(200));
    let error = journal.insert(&run, "waits", b"").await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
    holder.batch_execute("ROLLBACK").await.unwrap();
}

/// Control: without the retry the same collision surfaces as 23505.
#[tokio::test]
async fn a_position_taken_by_a_writer_without_the_lock_is_retried() {
    let (owner, direct) = (connect().await, connect().await);
    let run = run("retry");
    let take = "INSERT INTO bide.steps (run_id, seq, name, data) VALUES ($1, 0, $2, '')";
    owner.batch_execute("BEGIN").await.unwrap();
    owner.execute(take, &[&run, &"foreign"]).await.unwrap();
    let waiting = {
        let run = run.clone();
        let client = connect().await;
        tokio::spawn(async move { Journal::new(&client).insert(&run, "ours", b"x").await })
    };
    let blocked = "SELECT count(*) FROM pg_stat_activity \
                   WHERE query LIKE '%bide.insert($1%' AND wait_event_type = 'Lock'";
    for _ in 0.. {
        let count: i64 = direct.query_one(blocked, &[]).await.unwrap().get(0);
        if count > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    owner.batch_execute("COMMIT").await.unwrap();
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!((answer.seq, answer.inserted), (1, true));
}

/// What the client has no method for is called by ordinary parameters too, like everything else.
#[tokio::test]
async fn the_other_functions_take_ordinary_parameters() {
    let client = connect().await;
    let run = run("others");
    let next: i64 = client.query_one("SELECT bide.next_seq($1)", &[&run]).await.unwrap().get(0);
    assert_eq!(next, 0);
    let version: &str = env!("CARGO_PKG_VERSION");
    let row = client.query_one("SELECT bide.version(), bide.schema_version()", &[]).await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, i32>(1)), (version, 1));
    let document = tokio_postgres::types::Json(serde_json::json!({"a": [1, null, "x", 2.5]}));
    let row =
        client.query_one("SELECT bide.from_cbor(bide.to_cbor($1))", &[&document]).await.unwrap();
    let back: tokio_postgres::types::Json<serde_json::Value> = row.get(0);
    assert_eq!(back.0, document.0);
    let grant = "SELECT bide.grant_access($1, $2)";
    client.query_one(grant, &[&"pg_read_all_stats", &"reader"]).await.unwrap();
    client.query_one(grant, &[&"pg_read_all_stats", &"none"]).await.unwrap();
    let ages_ago = SystemTime::UNIX_EPOCH;
    assert_eq!(Journal::new(&client).purge_finished(ages_ago, 10).await.unwrap(), 0);
}
