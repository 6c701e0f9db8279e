//! Reports to the server: attempts that it knows nothing of, and the state of the agent.

use holdfast_proto::ErrorCode;
use holdfast_proto::api::{Agent, AgentReport};
use holdfast_proto::limits::REASON_MAX_BYTES;

use super::LayersSource;
use super::reached::Reached;
use super::state::Untold;
use crate::backup::{self, BackupOptions};
use crate::connect::Connection;
use crate::error::ClientError;

/// Reports that are due.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) layers: LayersSource,
    pub(super) attempts: Vec<Untold>,
    /// `None`: an agent that does not back up by the clock.
    pub(super) report: Option<AgentReport>,
}

/// Result of telling the server.
#[derive(Debug)]
pub(super) struct Told {
    /// Attempts that need not be told again.
    pub(super) attempts: Vec<Untold>,
    /// Its answer to the report.
    pub(super) reported: Result<(), ClientError>,
}

impl Words {
    /// Tells the server of attempts that it knows nothing of, and of the agent: also that attempts are left, if any are.
    ///
    /// # Errors
    /// Those of the connection.
    pub(super) async fn tell(self) -> Result<Told, ClientError> {
        let Self { layers, attempts, report } = self;
        let reached = tokio::task::spawn_blocking(move || Reached::new(&layers)).await;
        let reached = reached.map_err(|_| ClientError::Internal("reading the profile panicked"))??;
        let connection = Connection::open(&reached.settings).await?;
        let count = attempts.len();
        let attempts = tell(&connection, &reached, attempts).await;
        let reported = match report {
            None => Ok(()),
            Some(report) => {
                let report = with_left(report, count.saturating_sub(attempts.len()));
                connection.api().post(&["agents"], &report).await.map(|_: Agent| ())
            }
        };
        Ok(Told { attempts, reported })
    }
}

/// A report that says how many attempts wait to be told.
fn with_left(mut report: AgentReport, left: usize) -> AgentReport {
    if left > 0 {
        let before = if report.problem.is_empty() { "" } else { "; " };
        let text = format!(
            "the server has no record yet of {left} attempts that failed, see the agent's log{before}"
        );
        report.problem.insert_str(0, &text);
        report.problem.truncate(report.problem.floor_char_boundary(REASON_MAX_BYTES));
    }
    report
}

/// Returns true if the server would refuse whatever else it is told, for now.
fn is_of_all(error: &ClientError) -> bool {
    error.is_connection_loss() || error.is_unauthenticated()
}

/// Returns true if the server would refuse the same again, and again: the VM is another owner's by now, or what is named is no
/// more.
const fn is_for_good(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Refused { code: ErrorCode::Invalid | ErrorCode::NotFound | ErrorCode::Forbidden, .. }
    )
}

async fn tell(connection: &Connection, reached: &Reached, attempts: Vec<Untold>) -> Vec<Untold> {
    let mut told = Vec::new();
    for attempt in attempts {
        let namespace = if attempt.namespace.is_empty() { &reached.namespace } else { &attempt.namespace };
        let options = BackupOptions {
            job: attempt.job.clone(),
            run_id: attempt.run.clone(),
            cipher: reached.cipher.clone(),
            ..BackupOptions::new(namespace.as_str(), &attempt.vm)
        };
        let at = holdfast_proto::when::timestamp(attempt.at_ms);
        let reason = format!("at {at}: {}", attempt.reason);
        match backup::record_attempt(connection, &options, &attempt.disks, &reason).await {
            Ok(()) => told.push(attempt),
            Err(error) if is_for_good(&error) => {
                tracing::error!(vm = attempt.vm, reason, %error, "the server does not take the record of an attempt");
                told.push(attempt);
            }
            Err(error) if is_of_all(&error) => {
                tracing::warn!(%error, "the server cannot be told of attempts yet");
                break;
            }
            // It may be of this VM alone, such as that it is busy.
            Err(error) => tracing::warn!(vm = attempt.vm, %error, "the server is told of an attempt later"),
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_record_that_is_refused_holds_up_no_other() {
        for (code, of_all, for_good) in [
            (ErrorCode::Unavailable, true, false),
            (ErrorCode::Unauthenticated, true, false),
            (ErrorCode::Forbidden, false, true),
            (ErrorCode::Invalid, false, true),
            (ErrorCode::NotFound, false, true),
            (ErrorCode::Busy, false, false),
            (ErrorCode::Full, false, false),
        ] {
            let error = ClientError::from(code.status("refused"));
            assert_eq!((is_of_all(&error), is_for_good(&error)), (of_all, for_good), "{error:?}");
        }
    }

    #[test]
    fn attempts_that_are_left_are_a_problem_of_the_agent() {
        let fine = AgentReport::default();
        assert_eq!(with_left(fine.clone(), 0), fine);
        let broken = AgentReport { problem: "x".repeat(REASON_MAX_BYTES), ..fine };
        let told = with_left(broken, 3).problem;
        assert!(
            told.contains("3 attempts") && told.contains("; xx") && told.len() == REASON_MAX_BYTES,
            "{told}"
        );
    }
}
