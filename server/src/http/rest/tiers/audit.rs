//! The last audit of a bucket, and the flaws that are known there.

use holdfast_tiers::Record;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::ServiceError;
use crate::http::rest::wire::time;
use crate::repository::{last_audit, record_error};

/// Flaws named in an answer, at most.
const FLAWS_NAMED: u32 = 20;

/// What audits and readers found in the bucket
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierAudit)]
pub(super) struct AuditState {
    /// null: none has ended yet
    last: Option<LastAudit>,
    /// Objects that are not as they should be and were not put right
    flaws_count: u64,
    /// The first 20 of them
    flaws: Vec<FlawState>,
}

/// The last audit that ended
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierLastAudit)]
struct LastAudit {
    /// When it began
    begun: String,
    /// What it came to, in words
    verdict: String,
}

/// An object that is not as it should be
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierFlaw)]
struct FlawState {
    name: String,
    /// What is wrong, in words
    what: String,
    /// Whether it cannot be read again by bringing it back
    lost: bool,
    found: String,
}

/// Reads the state from the record. Blocks.
pub(super) fn look(record: &Record) -> Result<AuditState, ServiceError> {
    let flaws = record.flaws(FLAWS_NAMED).map_err(record_error)?;
    let flaws = flaws.into_iter().map(|(name, flaw, found_ms)| FlawState {
        name: name.to_string(),
        what: flaw.text(),
        lost: flaw.is_loss(),
        found: time(found_ms),
    });
    Ok(AuditState {
        last: last_audit(record).map_err(record_error)?.as_ref().and_then(last),
        flaws_count: record.flaws_count().map_err(record_error)?,
        flaws: flaws.collect(),
    })
}

fn last(said: &Value) -> Option<LastAudit> {
    let begun = time(said.get("at_ms")?.as_i64()?);
    let verdict = said.get("verdict")?.as_str()?.to_owned();
    Some(LastAudit { begun, verdict })
}
