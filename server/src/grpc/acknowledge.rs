//! When a backup is acknowledged: once it is committed here, or, with `s3_primary`, once the bucket has it as well.
//!
//! (T12) What is waited for comes after the commit, so the restore point exists meanwhile, is listed and can be restored; its
//! agent is told that it was made when the bucket has everything that it needs. An agent that was not told asks again, and
//! is answered by the same rule.

use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::ErrorCode;
use holdfast_tiers::CopyStatus;
use tokio::time::Instant;

use crate::app::App;
use crate::error::ServiceError;
use crate::repository::Tiers;

/// Between two looks whether all is there: a request to the bucket takes longer.
const LOOK: Duration = Duration::from_millis(20);

/// Between two looks whether copies fail: each counts all that waits, and every backup that ends looks.
const FAILURE_LOOK: Duration = Duration::from_secs(1);

/// How long copies may fail before the agent is told why: it asks again for as long as its `--retry-for` says.
const FAILING: Duration = Duration::from_secs(60);

/// Resolves when what was sealed so far is where the settings want it.
///
/// # Errors
/// `Unavailable`: copies have been failing for a while, or the server stops.
pub(super) async fn until_kept(app: &App) -> Result<(), ServiceError> {
    match app.tiers.as_ref().filter(|tiers| tiers.is_primary) {
        Some(tiers) => until_copied(app, tiers).await,
        None => Ok(()),
    }
}

async fn until_copied(app: &App, tiers: &Arc<Tiers>) -> Result<(), ServiceError> {
    let mark = tiers.copies.mark();
    let mut stopping = app.stopping();
    let (mut failing_since, mut looked) = (None, None::<Instant>);
    while !tiers.copies.has_up_to(mark) {
        if looked.is_none_or(|looked| looked.elapsed() >= FAILURE_LOOK) {
            looked = Some(Instant::now());
            match failing(&tiers.copies.status()) {
                None => failing_since = None,
                Some(why) if failing_since.get_or_insert_with(Instant::now).elapsed() >= FAILING => {
                    return Err(unkept(tiers, &why));
                }
                Some(_) => {}
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = stopping.wait_for(|stops| *stops) => return Err(unkept(tiers, "the server stops")),
        }
    }
    Ok(())
}

/// Why copies do not get on.
fn failing(status: &CopyStatus) -> Option<String> {
    let unreadable =
        || status.unreadable.first().map(|name| format!("{name} cannot be read here, so it is not copied"));
    status.failure.clone().or_else(unreadable)
}

fn unkept(tiers: &Tiers, why: &str) -> ServiceError {
    ServiceError::new(
        ErrorCode::Unavailable,
        format!(
            "the restore point is made, but {} does not have all of it yet, and a backup counts only then (s3_primary): {why}. It \
             is copied as soon as that is possible",
            tiers.location
        ),
    )
}
