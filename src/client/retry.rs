//! Which errors are tried again, and after which wait.
//!
//! There is no limit to the attempts: a call ends with success, with another error, or at the caller's
//! deadline. The waits are uniform below a ceiling that doubles ("full jitter").
//! Source: Brooker, "Exponential Backoff And Jitter", 2015.

use super::Error;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::error::{DbError, SqlState};

/// What is retried beside serialization failures and deadlocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    Transient,
    /// A writer that skips the run lock may take our position or name first: the next attempt sees it.
    AlsoTakenPositions,
}

impl Retry {
    fn allows(self, error: &DbError) -> bool {
        let code = error.code();
        let transient = *code == SqlState::T_R_SERIALIZATION_FAILURE
            || *code == SqlState::T_R_DEADLOCK_DETECTED;
        // Another unique index, or a trigger, raising 23505 would be retried until the deadline.
        transient
            || (self == Retry::AlsoTakenPositions
                && *code == SqlState::UNIQUE_VIOLATION
                && matches!(error.constraint(), Some("steps_pkey" | "steps_run_id_seq_key")))
    }
}

/// The ceiling of the wait before retry `retry`, which counts from 1.
fn ceiling(retry: u32) -> Duration {
    const MOST: Duration = Duration::from_millis(100);
    let doubled = 1u64.checked_shl(retry.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_millis(doubled).min(MOST)
}

/// Calls until it works, fails for good, or `within` is over.
pub(super) async fn until<T, F>(
    within: Option<Duration>,
    retry: Retry,
    mut call: impl FnMut() -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, tokio_postgres::Error>>,
{
    let deadline = within.map(|within| Instant::now() + within);
    let mut last = None;
    for attempt in 1u32.. {
        let answer = match deadline {
            None => call().await,
            Some(deadline) => match timeout_at(deadline, call()).await {
                Ok(answer) => answer,
                Err(_) => return Err(Error::Deadline { source: last }),
            },
        };
        match answer {
            Ok(value) => return Ok(value),
            Err(error) if !error.as_db_error().is_some_and(|error| retry.allows(error)) => {
                return Err(error.into());
            }
            Err(error) => last = Some(error),
        }
        let wait = ceiling(attempt).mul_f64(rand::random());
        match deadline {
            Some(deadline) if Instant::now() + wait >= deadline => {
                return Err(Error::Deadline { source: last });
            }
            _ => sleep(wait).await,
        }
    }
    unreachable!("attempts do not run out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_double_up_to_a_tenth_of_a_second_and_never_overflow() {
        let ceilings: Vec<u128> = (1..=9).map(|retry| ceiling(retry).as_millis()).collect();
        assert_eq!(ceilings, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        assert_eq!(ceiling(64).as_millis(), 100);
        assert_eq!(ceiling(u32::MAX).as_millis(), 100);
    }
}
