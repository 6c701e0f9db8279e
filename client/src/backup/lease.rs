//! Keeping a session alive while something else is done.

use std::time::Duration;

use holdfast_proto::v1;

use crate::connect::Connection;
use crate::error::ClientError;

/// Runs `work` while renewing the session's lease three times as often as needed. A failed renewal ends the
/// work only when the session is gone: a lost connection shows in the work itself.
pub(super) async fn with_lease<T>(
    connection: &Connection,
    session: &v1::StartResponse,
    work: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let mut client = connection.backup();
    let renew = async {
        let mut lease_secs = session.lease_secs;
        loop {
            tokio::time::sleep(Duration::from_secs(u64::from(lease_secs.max(3))) / 3).await;
            let session_id = session.session_id.clone();
            match client.keep_alive(v1::KeepAliveRequest { session_id }).await {
                Ok(answer) => lease_secs = answer.into_inner().lease_secs,
                Err(status) => {
                    let error = ClientError::from(status);
                    if error.is_session_gone() {
                        return error;
                    }
                }
            }
        }
    };
    tokio::select! {
        biased;
        outcome = work => outcome,
        error = renew => Err(error),
    }
}
