//! Join codes: made for an administrator, redeemed by the agent that they are for.
//!
//! A code is a token that cannot be used yet (`holdfast_catalog::token`, `join`). Redeeming it is open to strangers, like a
//! login: the same places, body limit, deadline and back-off, and both outcomes are in the audit log.

use std::net::SocketAddr;

use holdfast_engine::catalog::token::{self, Role, TokenRecord};
use holdfast_engine::catalog::{AuditEntry, AuditRepeat, Catalog};
use holdfast_engine::clock::Clock;
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;
use holdfast_proto::address::ServerAddress;
use holdfast_proto::api::Joined;
use holdfast_proto::cert_fingerprint::CertFingerprint;
use holdfast_proto::join::{JoinCode, JoinSecret};

use super::tokens::{NewToken, audit, namespace_names};
use super::{Authenticator, UNKNOWN, peer_text};
use crate::error::ServiceError;

/// The answer to every code that cannot be redeemed.
const REFUSED: &str = "the join code was used, has expired after 15 minutes, or was revoked; make another: \
'holdfast-server token create --join' at the server, or Access, Add hypervisor in its web UI";

/// Makes a join code on behalf of `who`: a token that waits for an agent, and where that finds the server.
///
/// # Errors
/// `Invalid`; the catalog's errors.
pub(crate) fn create(
    catalog: &Catalog,
    clock: &dyn Clock,
    who: &str,
    new: &NewToken<'_>,
    (addresses, fingerprint): (Vec<ServerAddress>, CertFingerprint),
) -> Result<(JoinCode, TokenRecord), ServiceError> {
    check(new).map_err(ServiceError::invalid)?;
    let secret = token::new_join_secret(clock)?;
    let spec = new.spec(catalog, clock, TokenId::from_bytes(secret.token))?;
    let record = catalog.create_join_code(&spec, &secret)?;
    audit(
        catalog,
        who,
        "token.create",
        record.id,
        format!("{}, for the agent that redeems a join code", new.detail()),
    )?;
    Ok((JoinCode { addresses, fingerprint, secret }, record))
}

/// Checks what is asked of a code, besides [`NewToken::check`].
///
/// # Errors
/// The problem with the request, for a person.
pub(crate) fn check(new: &NewToken<'_>) -> Result<(), String> {
    match new.role {
        Role::Backup | Role::Restore => Ok(()),
        role => Err(format!(
            "an agent joins with the role backup or restore, not {role}; create a token for {role}"
        )),
    }
}

impl Authenticator {
    /// Redeems a join code. The same agent may do so again while the code would be valid, for its answer may have been lost;
    /// it gets the same token. Blocks.
    ///
    /// # Errors
    /// `Unauthenticated`, always with the same words; the catalog's errors.
    pub(crate) fn redeem(
        &self,
        (code, key): &(JoinSecret, [u8; 32]),
        peer: Option<SocketAddr>,
    ) -> Result<(TokenId, Joined), ServiceError> {
        let Some((text, record, again)) = self.catalog.redeem_join_code(code, key)? else {
            let id = TokenId::from_bytes(code.token);
            let named = self.catalog.token(id)?.map_or_else(|| UNKNOWN.to_owned(), |_| id.to_string());
            self.note_failure(&named, peer);
            return Err(ServiceError::new(ErrorCode::Unauthenticated, REFUSED));
        };
        let from = peer_text(peer);
        let entry = AuditEntry {
            who: record.name.clone(),
            action: "token.join".to_owned(),
            object: record.id.to_string(),
            detail: format!("from {from}{}", if again { ", again" } else { "" }),
        };
        // Who has the key may ask as often as it likes.
        self.catalog.audit_repeats(&[AuditRepeat::once(entry, from, self.clock.now_ms())])?;
        let namespaces = namespace_names(&self.catalog, &record)?;
        Ok((record.id, Joined { token: text.as_str().to_owned(), namespaces }))
    }
}
