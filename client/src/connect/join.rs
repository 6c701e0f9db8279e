//! Joining: the server of a join code is found and recognised, and gives this agent a token of its own.
//!
//! The code is spent once the server has answered, and the answer may be lost. So the agent's key, which gets the same answer
//! again, is in a file beside the profile before the code is shown to the server, and until the profile is written.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_proto::address::ServerAddress;
use holdfast_proto::api::{Join, Joined};
use holdfast_proto::join::JoinCode;
use tokio::task::JoinSet;
use tonic::service::interceptor::InterceptedService;

use super::profile::{FILE_MAX_BYTES, read_small, write_private};
use super::{Api, Credentials, Trust, channel, retrying, tls};
use crate::error::{ClientError, ConnectError};

/// Head start of each address over the next one: so the first that works is taken, and one that does not answer costs
/// little (RFC 8305 has the same delay).
const HEAD_START: Duration = Duration::from_millis(250);

/// Time for which the server is asked again when its answer is lost.
const RETRY_FOR: Duration = Duration::from_secs(30);

/// The first of the code's addresses at which a server answers with the code's certificate.
///
/// # Errors
/// [`ConnectError::NoneReached`], with what each address did.
pub async fn find_server(code: &JoinCode) -> Result<ServerAddress, ClientError> {
    let mut dials = JoinSet::new();
    for (at, address) in (0..).zip(code.addresses.clone()) {
        let trust = Trust::Pinned(code.fingerprint);
        dials.spawn(async move {
            tokio::time::sleep(HEAD_START * at).await;
            let dialer = tls::Dialer::new(address.clone(), trust)?;
            dialer.dial().await.map(|_| address)
        });
    }
    let mut failures = Vec::new();
    while let Some(outcome) = dials.join_next().await {
        match outcome.map_err(|_| ClientError::Internal("an attempt to connect ended by itself"))? {
            Ok(address) => return Ok(address),
            Err(error) => failures.push(format!("  {error}")),
        }
    }
    Err(ConnectError::NoneReached { expected: code.fingerprint, failures: failures.join("\n") }.into())
}

/// Redeems the code at that server.
///
/// # Errors
/// [`ClientError::Refused`] when the server does not take it (any more); those of connections.
pub async fn redeem(server: &ServerAddress, code: &JoinCode, key: &AgentKey) -> Result<Joined, ClientError> {
    let dialer = tls::Dialer::new(server.clone(), Trust::Pinned(code.fingerprint))?;
    let join = Join::new(&code.secret, &key.bytes);
    retrying(RETRY_FOR, async || {
        let api = Api::new(InterceptedService::new(channel(&dialer).await?, Credentials::none()));
        api.post(&["join"], &join).await
    })
    .await
}

/// Tells this agent from all others, for as long as it joins. In a file, so that it outlives this process.
#[derive(Debug)]
pub struct AgentKey {
    bytes: [u8; 32],
    path: PathBuf,
}

impl AgentKey {
    /// The key that an interrupted attempt left beside the profile, or else a new one.
    ///
    /// # Errors
    /// [`ClientError::File`], in particular where no profile could be written either.
    pub fn beside(profile: &Path) -> Result<Self, ClientError> {
        let path = profile.with_extension("toml.joining");
        let left =
            read_small(&path, FILE_MAX_BYTES)?.and_then(|text| blake3::Hash::from_hex(text.trim()).ok());
        if let Some(left) = left {
            return Ok(Self { bytes: *left.as_bytes(), path });
        }
        let mut bytes = [0; 32];
        aws_lc_rs::rand::fill(&mut bytes)
            .map_err(|_| ClientError::Internal("the operating system has no random numbers"))?;
        let text = format!("{}\n", blake3::Hash::from_bytes(bytes).to_hex());
        write_private("writing the key of this agent to", &path, &text)?;
        Ok(Self { bytes, path })
    }

    /// The agent has joined.
    ///
    /// # Errors
    /// [`ClientError::File`].
    pub fn forget(self) -> Result<(), ClientError> {
        match fs::remove_file(&self.path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                Err(ClientError::File { what: "removing", path: self.path, source })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_attempt_goes_on_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path().join("new/profile.toml");
        let first = AgentKey::beside(&profile).unwrap();
        let again = AgentKey::beside(&profile).unwrap();
        assert_eq!(first.bytes, again.bytes);
        fs::write(&again.path, "torn").unwrap();
        let torn = AgentKey::beside(&profile).unwrap();
        assert_ne!(torn.bytes, first.bytes, "it was never shown to a server");
        torn.forget().unwrap();
        assert_ne!(AgentKey::beside(&profile).unwrap().bytes, first.bytes);
    }
}
