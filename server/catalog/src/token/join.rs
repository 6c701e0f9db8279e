//! Join codes at the server: a token that waits for the agent that it is for.
//!
//! The record is a token's from the beginning, with the hash of a one-time secret in place of its own, and cannot be used.
//! Redeeming the code puts the token's hash there. The token's secret is derived from the one-time secret and a key that the
//! agent chose, so that the answer to the same agent is the same again when the first was lost, and the catalog still keeps
//! no more than a hash. Who saw the code afterwards, in a shell's history for example, lacks the agent's key.

use holdfast_proto::join::JoinSecret;
use holdfast_types::clock::Clock;
use holdfast_types::ids::TokenId;

use super::{PresentedToken, TokenText};
use crate::CatalogError;
use crate::new_id::{fill_random, new_id};

/// Time for which a code can be redeemed: the time to walk to another machine.
pub const JOIN_MS: i64 = 15 * 60_000;

/// Separate the hashes from every other use of BLAKE3 and name their version.
const CODE_CONTEXT: &str = "holdfast 2026-11-27 join code secret v1";
const TOKEN_CONTEXT: &str = "holdfast 2026-11-27 access token of a join code v1";

/// A new one-time secret, for a token of the id in it.
///
/// # Errors
/// [`CatalogError::Io`] when the operating system has no random numbers.
pub fn new_join_secret(clock: &dyn Clock) -> Result<JoinSecret, CatalogError> {
    let mut secret = [0; 16];
    fill_random(&mut secret)?;
    Ok(JoinSecret { token: TokenId(new_id(clock)?).to_bytes(), secret })
}

/// The hash that the catalog keeps until the code is redeemed.
pub fn join_secret_hash(code: &JoinSecret) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(CODE_CONTEXT);
    hasher.update(&code.token).update(&code.secret);
    *hasher.finalize().as_bytes()
}

/// The token that an agent with this key gets for the code: its text, and the hash that the catalog keeps from then on.
pub fn joined_token(code: &JoinSecret, agent_key: &[u8; 32]) -> (TokenText, [u8; 32]) {
    let mut hasher = blake3::Hasher::new_derive_key(TOKEN_CONTEXT);
    hasher.update(&code.token).update(&code.secret).update(agent_key);
    let token = PresentedToken { id: TokenId::from_bytes(code.token), secret: *hasher.finalize().as_bytes() };
    (token.text(), token.hash())
}
