//! Common parts of all calls: the caller, the protocol version, and the form of identifiers.

use std::fmt::Display;
use std::str::FromStr;

use holdfast_engine::catalog::token::Action;
use holdfast_engine::ids::SessionId;
use holdfast_proto::limits::{ID_SHOWN_BYTES, plain_text};
use holdfast_proto::version::{PROTOCOL_METADATA, check_spoken};
use holdfast_proto::{ErrorCode, RETRY_AFTER_METADATA, v1};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Status};
use tracing::field::DisplayValue;

use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::grpc::calls::Call;

/// Stage of a call: before or after version negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Hello,
    Negotiated,
}

/// Caller of this call, as the gate in front of all calls found out. The token comes first: a stranger learns nothing,
/// not even our versions.
pub(super) fn caller<T>(request: &Request<T>, stage: Stage) -> Result<Caller, Status> {
    let caller = request.extensions().get::<Caller>().cloned();
    let caller = caller.ok_or_else(|| ServiceError::defect("a call came past the gate").into_status())?;
    if stage == Stage::Negotiated {
        check_protocol(request.metadata()).map_err(ServiceError::into_status)?;
    }
    Ok(caller)
}

fn check_protocol(metadata: &MetadataMap) -> Result<(), ServiceError> {
    Ok(check_spoken(metadata.get(PROTOCOL_METADATA).map(MetadataValue::as_bytes))?)
}

/// Notes in the audit log that a call was refused, if it was, whose refusal comes as a message of its answer: the gate sees only
/// how answers begin. Blocks.
pub(super) fn note_late_refusal(app: &App, caller: &Caller, call: Option<Call>, error: &ServiceError) {
    if let Some(call) = call.filter(|_| error.code == ErrorCode::Forbidden) {
        app.auth.note_refused_call(caller, call.name, &error.message);
    }
}

/// Reads an identifier from the wire.
pub(super) fn parse_id<T: FromStr>(what: &str, text: &str) -> Result<T, ServiceError> {
    // Not quoted at length: it may be megabytes.
    text.parse().map_err(|_| {
        let shown = plain_text(text, ID_SHOWN_BYTES);
        ServiceError::invalid(format!("{shown:?} is not a {what} id"))
    })
}

/// An identifier from the wire as a log line may show it; nothing when it is not one.
pub(super) fn shown<T: FromStr + Display>(text: &str) -> Option<DisplayValue<T>> {
    text.parse().ok().map(tracing::field::display)
}

/// The session of that name, when the caller started it: every call on a session comes through here. A session of
/// another namespace is as unknown as one that does not exist. Blocks.
pub(super) fn own_session(app: &App, caller: &Caller, text: &str) -> Result<SessionId, ServiceError> {
    caller.check_role(Action::Backup)?;
    let session: SessionId = parse_id("session", text)?;
    match app.engine.session_namespace(session) {
        Ok(namespace) if caller.may(Action::Backup, namespace) => {
            app.engine.check_starter(session, caller.token.id)?;
            Ok(session)
        }
        Err(error) if error.code() != ErrorCode::SessionGone => Err(error.into()),
        _ => Err(session_gone(session)),
    }
}

/// Message to a stream that waits behind `ahead` others.
pub(super) fn queued(ahead: usize) -> v1::Queued {
    v1::Queued { ahead: u32::try_from(ahead).unwrap_or(u32::MAX) }
}

/// Error for a session that is not the caller's: in one place, so that a foreign session and an unknown one cannot be
/// told apart.
fn session_gone(session: SessionId) -> ServiceError {
    ServiceError::new(
        ErrorCode::SessionGone,
        format!("session {session} is unknown or has ended; start the backup again"),
    )
}

impl ServiceError {
    /// Converts it into a gRPC status. This is where a call's error is handled, so it is logged here.
    pub(super) fn into_status(self) -> Status {
        self.log();
        let mut status = self.code.status(self.message);
        if let Some(secs) = self.retry_after_secs {
            status.metadata_mut().insert(RETRY_AFTER_METADATA, secs.into());
        }
        status
    }
}
