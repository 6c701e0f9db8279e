//! Who is calling, and whether they may.
//!
//! Invariants:
//! * Every call looks its token up in the catalog, so a revoked token ends with the next call (and streams
//!   under way within [`crate::server::HOUSEKEEPING_INTERVAL`]).
//! * No, a malformed, an unknown, a wrong, an expired and a revoked token all get the same answer.
//! * A namespace outside the token's scope and one that does not exist get the same answer. So do sessions
//!   and backups, which are asked for by identifier: as if they did not exist.

mod failures;
#[cfg(test)]
mod tests;
mod web;

use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_engine::catalog::token::{Action, PresentedToken, TokenRecord};
use holdfast_engine::catalog::{AuditEntry, Catalog, DEFAULT_NAMESPACE, NamespaceRecord};
use holdfast_engine::clock::Clock;
use holdfast_engine::ids::{NamespaceId, TokenId};
use holdfast_proto::ErrorCode;

use crate::error::ServiceError;
use failures::Failures;
pub use web::{Cookie, WEB_LOGIN_MS, WebLogin};

/// What everybody is told whose token does not open the door.
pub const REFUSED: &str = "no valid token was presented; get one with 'holdfast-server token create' at the server, then run 'holdfast login'";

/// Compared with when there is no such token, so that the answer takes as long.
const NO_HASH: [u8; 32] = [0; 32];

/// Knows the tokens.
#[derive(Debug)]
pub struct Authenticator {
    catalog: Arc<dyn Catalog>,
    clock: Arc<dyn Clock>,
    failures: Failures,
}

/// Somebody whose token is valid.
#[derive(Debug, Clone)]
pub struct Caller {
    pub token: TokenRecord,
    pub peer: Option<SocketAddr>,
}

impl Authenticator {
    /// Looks tokens up in `catalog`.
    pub fn new(catalog: Arc<dyn Catalog>, clock: Arc<dyn Clock>) -> Self {
        Self { catalog, clock, failures: Failures::default() }
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
    fn authenticate_token(
        &self,
        text: Option<&str>,
        peer: Option<SocketAddr>,
    ) -> Result<Caller, ServiceError> {
        let presented = text.and_then(|text| text.parse::<PresentedToken>().ok());
        let token = match &presented {
            Some(presented) => self.find(presented)?,
            None => None,
        };
        match token {
            Some(token) => {
                self.touch(&token);
                Ok(Caller { token, peer })
            }
            None => {
                self.note_failure(presented.map(|presented| presented.id()), peer);
                Err(ServiceError::new(ErrorCode::Unauthenticated, REFUSED))
            }
        }
    }

    fn find(&self, presented: &PresentedToken) -> Result<Option<TokenRecord>, ServiceError> {
        let found = self.catalog.token(presented.id())?;
        let matches = presented.matches(found.as_ref().map_or(&NO_HASH, |(_, hash)| hash));
        Ok(found.map(|(token, _)| token).filter(|token| matches && token.is_usable(self.clock.now_ms())))
    }

    /// Notes the use of a token. A catalog that cannot be written to must not keep anybody from restoring.
    fn touch(&self, token: &TokenRecord) {
        if let Err(error) = self.catalog.touch_token(token.id) {
            tracing::debug!(token = %token.id, %error, "cannot note the use of a token");
        }
    }

    /// Whether a token of a stream under way is still valid. Blocks.
    ///
    /// # Errors
    /// The catalog's errors.
    pub fn still_valid(&self, token: TokenId) -> Result<bool, ServiceError> {
        let found = self.catalog.token(token)?;
        Ok(found.is_some_and(|(token, _)| token.is_usable(self.clock.now_ms())))
    }

    fn note_failure(&self, token: Option<TokenId>, peer: Option<SocketAddr>) {
        let Some(count) = self.failures.count(self.clock.now_ms()) else { return };
        let from = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.ip().to_string());
        let object = token.map_or_else(|| "malformed".to_owned(), |token| token.to_string());
        tracing::warn!(from, token = object, count, "calls without a valid token");
        let entry = AuditEntry {
            who: from,
            action: "login.refuse".to_owned(),
            object,
            detail: format!("{count} since the last entry of this kind"),
        };
        if let Err(error) = self.catalog.audit(&entry) {
            tracing::error!(%error, "cannot write the audit log");
        }
    }
}

/// The token of a `Bearer` header; the scheme's case does not matter (RFC 9110).
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start())
}

impl Caller {
    /// The role alone.
    ///
    /// # Errors
    /// `Forbidden` when it may do this nowhere.
    pub fn check_role(&self, action: Action) -> Result<(), ServiceError> {
        if self.token.role.may(action) {
            return Ok(());
        }
        let (name, role) = (&self.token.name, self.token.role);
        Err(ServiceError::new(
            ErrorCode::Forbidden,
            format!("token {name:?} has the role {role}, which may not do this; use a token of another role"),
        ))
    }

    /// The namespace called `name`, in which the caller may do `action`. An empty name means the token's
    /// only namespace, or the default one when the token is for all. Blocks.
    ///
    /// # Errors
    /// `Forbidden` by role or scope, `NotFound` when a token for all names one that is not there.
    pub fn namespace(
        &self,
        catalog: &dyn Catalog,
        name: &str,
        action: Action,
    ) -> Result<NamespaceRecord, ServiceError> {
        self.check_role(action)?;
        if name.is_empty() {
            return self.implied_namespace(catalog);
        }
        holdfast_proto::limits::check_name("namespace", name).map_err(ServiceError::invalid)?;
        match catalog.namespace_by_name(name)? {
            Some(namespace) if self.token.covers(namespace.id) => Ok(namespace),
            None if self.token.namespaces.is_empty() => Err(ServiceError::new(
                ErrorCode::NotFound,
                format!(
                    "there is no namespace {name:?}; creating a token for it with \
                     'holdfast-server token create --namespace' creates it"
                ),
            )),
            _ => Err(ServiceError::new(
                ErrorCode::Forbidden,
                format!("token {:?} is not for a namespace {name:?}; use a token that is", self.token.name),
            )),
        }
    }

    fn implied_namespace(&self, catalog: &dyn Catalog) -> Result<NamespaceRecord, ServiceError> {
        let found = match self.token.namespaces.as_slice() {
            [] => catalog.namespace_by_name(DEFAULT_NAMESPACE)?,
            [only] => catalog.namespace(*only)?,
            _ => {
                let name = &self.token.name;
                return Err(ServiceError::invalid(format!(
                    "token {name:?} is for several namespaces; say which one is meant"
                )));
            }
        };
        found.ok_or_else(|| ServiceError::new(ErrorCode::NotFound, "the token's namespace does not exist"))
    }

    /// Whether the caller may do `action` to something of `namespace`, which they named by identifier.
    pub fn may(&self, action: Action, namespace: NamespaceId) -> bool {
        self.token.may(action, namespace)
    }

    /// The namespaces to filter by: the one named, or all the token may see when the name is empty. Blocks.
    ///
    /// # Errors
    /// As [`Caller::namespace`].
    pub fn namespaces(
        &self,
        catalog: &dyn Catalog,
        name: &str,
        action: Action,
    ) -> Result<Option<Vec<NamespaceId>>, ServiceError> {
        self.check_role(action)?;
        if name.is_empty() {
            return Ok(self.scope());
        }
        Ok(Some(vec![self.namespace(catalog, name, action)?.id]))
    }

    /// The token's scope as the catalog filters by it; `None` means all.
    pub fn scope(&self) -> Option<Vec<NamespaceId>> {
        (!self.token.namespaces.is_empty()).then(|| self.token.namespaces.clone())
    }
}
