//! What the server is told: attempts that it knows nothing of, and how the agent is.

use holdfast_proto::ErrorCode;
use holdfast_proto::api::{Agent, AgentReport};

use super::LayersSource;
use super::attempt::{Reached, is_final};
use super::state::Untold;
use crate::backup::{self, BackupOptions};
use crate::connect::Connection;
use crate::error::ClientError;

/// What the server is to be told.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) layers: LayersSource,
    pub(super) attempts: Vec<Untold>,
    /// `None`: an agent that does not back up by the clock.
    pub(super) report: Option<AgentReport>,
}

impl Words {
    /// Tells the server of attempts that it knows nothing of, and of the agent; returns attempts that need not be told again.
    ///
    /// # Errors
    /// Those of the connection, and the server's refusal of the report.
    pub(super) async fn tell(self) -> Result<Vec<Untold>, ClientError> {
        let Self { layers, attempts, report } = self;
        let reached = tokio::task::spawn_blocking(move || Reached::new(&layers)).await;
        let reached = reached.map_err(|_| ClientError::Internal("reading the profile panicked"))??;
        let connection = Connection::open(&reached.settings).await?;
        if let Some(report) = report {
            let _: Agent = connection.api().post(&["agents"], &report).await?;
        }
        Ok(tell(&connection, &reached, attempts).await)
    }
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
            // What is refused for good would be refused again, and again.
            Err(error @ ClientError::Refused { code: ErrorCode::Invalid | ErrorCode::NotFound, .. }) => {
                tracing::error!(vm = attempt.vm, reason, %error, "the server does not take the record of an attempt");
                told.push(attempt);
            }
            // So would all others be.
            Err(error) if error.is_connection_loss() || is_final(&error) => {
                tracing::warn!(%error, "the server cannot be told of attempts yet");
                break;
            }
            Err(error) => tracing::warn!(vm = attempt.vm, %error, "the server is told of an attempt later"),
        }
    }
    told
}
