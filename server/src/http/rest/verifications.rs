//! Verifications: results of agents that read restore points back.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use holdfast_engine::catalog::Verification;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::ids::BackupId;
use holdfast_proto::api::{ConfirmedDigests, FalseChunks, Line, RegionsSentAgain, VerificationReport};
use holdfast_proto::limits::{FALSE_DIGESTS_MAX, VERIFICATION_DETAIL_MAX_BYTES, is_deceptive};

use crate::activity::Change;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::http::HttpState;
use crate::http::access::Identity;
use crate::http::ndjson::{self, Takes};
use crate::http::query::{AsLines, At, Body, id};
use crate::reading;

/// Action in the audit log: a report about a restore point that the caller may not have.
const REFUSED: &str = "backup.verify-refused";

/// Record what reading a restore point back found
///
/// Extents whose digests are said to be false are read by the server; an answer in NDJSON, one line, waits for that.
#[utoipa::path(post, path = "/backups/{id}/verifications", tag = "backups",
    params(("id" = String, Path, description = "The restore point's id")), request_body = VerificationReport,
    responses((status = 200, description = "It is recorded",
        content((ConfirmedDigests = "application/json"), (Line<ConfirmedDigests> = "application/x-ndjson")))))]
pub(super) async fn record(
    State(state): State<HttpState>,
    identity: Identity,
    At(text): At<String>,
    as_lines: AsLines,
    Body(report): Body<VerificationReport>,
) -> Result<Response, ServiceError> {
    let backup: BackupId = id("backup", &text)?;
    let caller = identity.caller.clone();
    ndjson::one(&state, &identity, (as_lines, Takes::Slot), move |app, _| {
        recorded(app, &caller, backup, report)
    })
    .await
}

/// Records what a client says it found. Any caller that may read a backup back may report it: damage that only its
/// owner sees must reach the operator. Digests it says are false are read and judged here.
fn recorded(
    app: &App,
    caller: &Caller,
    backup: BackupId,
    report: VerificationReport,
) -> Result<ConfirmedDigests, ServiceError> {
    // (A11) A report counts only from those who may have what it is about.
    let found = reading::may(app, caller, backup, Action::ReadBack, REFUSED)?;
    let VerificationReport { ok, detail: said, bytes, false_digests } = report;
    if said.len() > VERIFICATION_DETAIL_MAX_BYTES {
        return Err(ServiceError::invalid(format!(
            "the detail is longer than {VERIFICATION_DETAIL_MAX_BYTES} bytes"
        )));
    }
    let lies = false_digests.len();
    if lies > FALSE_DIGESTS_MAX {
        return Err(ServiceError::invalid(format!(
            "{lies} extents with a false digest in one report; the limit is {FALSE_DIGESTS_MAX}"
        )));
    }
    let read = format!("{bytes} bytes read and found sound");
    let said = said.replace(is_deceptive, " ");
    let detail = if said.is_empty() { read } else { format!("{said}; {read}") };
    let (vm, who) = (found.vm, &caller.token.name);
    app.catalog().record_verification(&Verification {
        backup,
        at_ms: app.clock.now_ms(),
        who: who.clone(),
        by_agent: true,
        ok,
        detail: detail.clone(),
    })?;
    app.metrics.verified(ok);
    app.activity.note(Change::Backup);
    if ok {
        tracing::info!(%backup, vm, token = who, detail, "a client verified a backup");
    } else {
        tracing::error!(%backup, vm, token = who, detail, "a client found a backup damaged");
    }
    // After the report itself is kept: reading what it names may fail.
    let reported: Vec<(String, u64)> =
        false_digests.into_iter().map(|digest| (digest.disk, digest.extent)).collect();
    let confirmed = app.engine.confirm_false_digests(found.namespace, backup, &reported, who)?;
    Ok(ConfirmedDigests { confirmed })
}

/// Name chunks that are not what their fingerprints say
///
/// Of a namespace that is end-to-end encrypted: the server cannot see whether that is so, and has them sent again. For tokens
/// that may back the VM up.
#[utoipa::path(post, path = "/backups/{id}/false-chunks", tag = "backups",
    params(("id" = String, Path, description = "The restore point's id")), request_body = FalseChunks,
    responses((status = 200, description = "They are noted", body = RegionsSentAgain)))]
pub(super) async fn false_chunks(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(text): At<String>,
    Body(FalseChunks { chunks }): Body<FalseChunks>,
) -> Result<Json<RegionsSentAgain>, ServiceError> {
    app.blocking(move |app| {
        // (N6) Only who may back the VM up: it asks of others what its own backups could ask.
        let found = reading::may(app, &caller, id("backup", &text)?, Action::Backup, REFUSED)?;
        let who = &caller.token.name;
        let regions = app.engine.note_false_chunks(found.namespace, found.id, &chunks, who)?;
        if regions > 0 {
            let (backup, vm) = (found.id, found.vm);
            tracing::error!(
                %backup,
                vm,
                token = who,
                regions,
                "a client says that chunks are not what they should be"
            );
            app.activity.note(Change::Backup);
        }
        Ok(Json(RegionsSentAgain { regions }))
    })
    .await
}
