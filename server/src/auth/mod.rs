//! Who is calling, and what they may do.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | tokens: from a header to a caller; the threads that look them up |
//! | `caller` | what a caller may do, and in which namespaces |
//! | `login` | logins with a browser: cookie and CSRF token |
//! | `join` | join codes: made and redeemed |
//! | `tokens` | creating and revoking tokens; owners of VMs |
//! | `back_off` | how addresses that show wrong tokens are slowed down |
//!
//! Invariants:
//! * Every call looks its token up in the catalog, so a revoked token ends with the next call (and answers under
//!   way within one round of a background job, see [`Authenticator::still_valid`]).
//! * A missing, a malformed, an unknown, a wrong, an expired and a revoked token all get the same answer.
//! * A namespace outside the token's scope and one that does not exist get the same answer. So do sessions
//!   and backups, which are asked for by identifier: as if they did not exist.

mod back_off;
mod caller;
pub(crate) mod join;
pub(crate) mod login;
#[cfg(test)]
mod tests;
pub(crate) mod tokens;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::{io, thread};

use holdfast_engine::catalog::token::{PresentedToken, TokenRecord};
use holdfast_engine::catalog::{AuditEntry, Catalog};
use holdfast_engine::clock::Clock;
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;
use holdfast_proto::limits::{REASON_MAX_BYTES, plain_text};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use crate::audit_log::AuditLog;
pub(crate) use crate::auth::back_off::BackOff;
pub(crate) use crate::auth::caller::Access;
pub use crate::auth::caller::Caller;
use crate::auth::login::LoginKey;
pub use crate::auth::login::{Cookie, LOGIN_MS, WebLogin};
use crate::error::ServiceError;

/// The answer to every call without a valid token.
pub const REFUSED: &str = "no token was presented, or it is unknown, revoked, disabled or expired; \
'holdfast-server token list' at the server shows the valid ones, 'holdfast-server token create' makes one";

/// Names in the audit log for a token this server does not know, and for text that does not have the form of a token.
const UNKNOWN: &str = "unknown token";
const MALFORMED: &str = "no or malformed token";

/// Compared with when there is no such token, so that the answer takes as long.
const NO_HASH: [u8; 32] = [0; 32];

/// Calls that may wait at a time until the use of their token or login is recorded. The other threads for look-ups
/// stay free while the catalog is slow to write.
const RECORDING_MAX: usize = 4;

const _: () = assert!(RECORDING_MAX < THREADS, "some threads must only read");

/// Finds the caller behind a token or a cookie.
#[derive(Debug)]
pub struct Authenticator {
    catalog: Arc<Catalog>,
    clock: Arc<dyn Clock>,
    audit_log: AuditLog,
    back_off: Arc<BackOff>,
    recording: Semaphore,
}

/// The token and login that an answer in progress depends on: it must end when either does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Credential {
    pub(crate) token: TokenId,
    /// `None` for a call with a bearer token.
    pub(crate) login: Option<LoginKey>,
}

impl Authenticator {
    /// Looks tokens up in `catalog`.
    pub fn new(catalog: Arc<Catalog>, clock: Arc<dyn Clock>) -> Self {
        Self {
            audit_log: AuditLog::new(Arc::clone(&catalog), Arc::clone(&clock)),
            catalog,
            clock,
            back_off: Arc::default(),
            recording: Semaphore::new(RECORDING_MAX),
        }
    }

    /// Slows down addresses that show wrong tokens.
    pub(crate) const fn back_off(&self) -> &Arc<BackOff> {
        &self.back_off
    }

    /// The caller behind an `authorization` header. Blocks.
    ///
    /// # Errors
    /// `Unauthenticated`, always with the same words; the catalog's errors.
    pub fn authenticate(
        &self,
        header: Option<&str>,
        peer: Option<SocketAddr>,
    ) -> Result<Caller, ServiceError> {
        self.authenticate_token(header.and_then(bearer), peer)
    }

    /// The caller behind a token's text. Blocks.
    pub(crate) fn authenticate_token(
        &self,
        text: Option<&str>,
        peer: Option<SocketAddr>,
    ) -> Result<Caller, ServiceError> {
        let presented = text.and_then(|text| text.parse::<PresentedToken>().ok());
        let (token, named) = match &presented {
            Some(presented) => self.find(presented)?,
            None => (None, MALFORMED.to_owned()),
        };
        match token {
            Some(token) => {
                self.touch(&token);
                Ok(Caller::new(token, peer))
            }
            None => {
                self.note_failure(&named, peer);
                Err(ServiceError::new(ErrorCode::Unauthenticated, REFUSED))
            }
        }
    }

    /// The token, if it may be used, and what the audit log calls the one that was named: its id only when there is
    /// such a token, so that strangers cannot choose texts.
    fn find(&self, presented: &PresentedToken) -> Result<(Option<TokenRecord>, String), ServiceError> {
        let found = self.catalog.token(presented.id())?;
        let matches = presented.matches(found.as_ref().map_or(&NO_HASH, |(_, hash)| hash));
        let named = found.as_ref().map_or_else(|| UNKNOWN.to_owned(), |(token, _)| token.id.to_string());
        let usable = |token: &TokenRecord| matches && token.is_usable(self.clock.now_ms());
        Ok((found.map(|(token, _)| token).filter(usable), named))
    }

    /// Records the use of a token. A catalog that cannot be written to must not prevent a restore; nor must one
    /// that takes long, so that only some calls at a time wait for it. The next call records what others left out.
    fn touch(&self, token: &TokenRecord) {
        let Ok(_turn) = self.recording.try_acquire() else { return };
        if let Err(error) = self.catalog.touch_token(token.id) {
            tracing::debug!(token = %token.id, %error, "cannot record the use of a token");
        }
    }

    /// Returns true if a token is still valid. Asked by a background job for every stream under way. Blocks.
    ///
    /// # Errors
    /// The catalog's errors.
    pub fn still_valid(&self, token: TokenId) -> Result<bool, ServiceError> {
        let found = self.catalog.token(token)?;
        Ok(found.is_some_and(|(token, _)| token.is_usable(self.clock.now_ms())))
    }

    /// Returns true if the token is still valid and the login, if there is one, has not ended. Blocks.
    ///
    /// # Errors
    /// The catalog's errors.
    pub(crate) fn still_holds(&self, credential: &Credential) -> Result<bool, ServiceError> {
        if let Some(key) = &credential.login
            && !self.login_lasts(key)?
        {
            return Ok(false);
        }
        self.still_valid(credential.token)
    }

    fn note_failure(&self, token: &str, peer: Option<SocketAddr>) {
        tracing::debug!(from = peer_text(peer), token, "a call without a valid token");
        self.audit_log.refused(peer.map(|peer| peer.ip()), token);
    }

    /// Notes that a call was refused to a caller by role, scope or patterns, unless something noted it that knows more:
    /// counted in one entry for the same token and call, so that a caller who tries for ever does not fill the catalog.
    /// `call` is no text of the caller's. Blocks.
    pub(crate) fn note_refused_call(&self, caller: &Caller, call: &str, why: &str) {
        if caller.refusal_noted() {
            return;
        }
        let TokenRecord { name, id, role, .. } = &caller.token;
        let why = plain_text(why, REASON_MAX_BYTES);
        let entry = AuditEntry {
            who: name.clone(),
            action: "call.refused".to_owned(),
            object: call.to_owned(),
            detail: format!("token {name:?} ({id}) has the role {role}: {why}"),
        };
        if self.audit_log.note(entry, call.to_owned()) {
            tracing::warn!(token = name, call, why, "a call was refused");
        }
    }

    /// Counted entries of the audit log.
    pub(crate) const fn audit_log(&self) -> &AuditLog {
        &self.audit_log
    }
}

/// The token that an `authorization` header names, right or wrong.
pub(crate) fn named_token(header: &str) -> Option<TokenId> {
    named_token_text(bearer(header)?)
}

/// The token that a token's text names, right or wrong.
pub(crate) fn named_token_text(text: &str) -> Option<TokenId> {
    text.trim().parse::<PresentedToken>().ok().map(|presented| presented.id())
}

/// The token of a `Bearer` header; the scheme's case does not matter (RFC 9110).
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start())
}

/// Address that a call came from, for logs.
pub(crate) fn peer_text(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.ip().to_string())
}

/// A look-up takes well under a millisecond; more threads than the catalog has connections for look-ups help only
/// those that record the use of a token.
const THREADS: usize = 8;

/// Look-ups that may wait for a thread: a few hundred bytes each.
const WAITING_MAX: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// Threads of authentication's own (H6). They end when this is dropped.
///
/// Who calls is asked before anything else, revoked tokens included. Work of callers that were let in occupies the
/// threads it runs on for as long as it waits (for a disk, for a client that stalls, for another session's lock), so
/// that question is never asked on the same threads.
#[derive(Debug)]
pub(crate) struct Lookups {
    queue: SyncSender<Job>,
}

impl Lookups {
    /// Starts them.
    ///
    /// # Errors
    /// When the operating system gives no threads.
    pub(crate) fn start() -> io::Result<Self> {
        let (queue, jobs) = mpsc::sync_channel(WAITING_MAX);
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..THREADS {
            let jobs = Arc::clone(&jobs);
            thread::Builder::new().name("holdfast-auth".to_owned()).spawn(move || serve(&jobs))?;
        }
        Ok(Self { queue })
    }

    /// Runs `look_up` on one of the threads.
    ///
    /// # Errors
    /// The errors of `look_up`; `Limit` when too many wait already; `Internal` when it panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        look_up: impl FnOnce() -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let (answer, answered) = oneshot::channel();
        // The caller may have gone away.
        let job: Job = Box::new(move || drop(answer.send(look_up())));
        self.queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => ServiceError::at_capacity(format!(
                "{WAITING_MAX} calls wait to be authenticated; try again in a moment"
            )),
            TrySendError::Disconnected(_) => ServiceError::shutting_down(),
        })?;
        answered.await.unwrap_or_else(|_| {
            Err(ServiceError::new(
                ErrorCode::Internal,
                "the server failed with an internal error; its log says more",
            ))
        })
    }
}

fn serve(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().recv();
        let Ok(job) = job else { return };
        // The one who asked sees that no answer comes, and the log has the panic.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}
