//! Redeeming a join code.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::join::JoinSecret;

/// The secret of a join code, and the key of the agent that redeems it
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// The id of the token and the one-time secret: 64 hexadecimal digits
    pub secret: String,
    /// 32 random bytes of the agent, hexadecimal: the same again get the same token, as long as the code would be valid
    pub key: String,
}

impl Join {
    /// Of a code's secret and an agent's key.
    pub fn new(secret: &JoinSecret, key: &[u8; 32]) -> Self {
        let both = [secret.token, secret.secret].concat();
        Self { secret: hex(&both), key: hex(key) }
    }

    /// The code's secret, and the agent's key.
    ///
    /// # Errors
    /// The name of the field that is not as it should be.
    pub fn read(&self) -> Result<(JoinSecret, [u8; 32]), &'static str> {
        let bytes =
            |name, text| blake3::Hash::from_hex(text).map(|bytes| *bytes.as_bytes()).map_err(|_| name);
        let (both, key) = (bytes("secret", &self.secret)?, bytes("key", &self.key)?);
        let ([token, secret], _) = both.as_chunks() else { return Err("secret") };
        Ok((JoinSecret { token: *token, secret: *secret }, key))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Debug for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Join(…)")
    }
}

/// The token of an agent that joined
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Joined {
    /// The token's text
    pub token: String,
    /// The token's namespaces; empty: all
    pub namespaces: Vec<String>,
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Joined({:?}, …)", self.namespaces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let (secret, key) = (JoinSecret { token: [1; 16], secret: [2; 16] }, [3; 32]);
        let join = Join::new(&secret, &key);
        assert_eq!(join.read(), Ok((secret, key)));
        assert_eq!(Join { key: join.key[1..].to_owned(), ..join.clone() }.read(), Err("key"));
        assert_eq!(Join { secret: join.secret.replace('0', "x"), ..join.clone() }.read(), Err("secret"));
        assert_eq!(format!("{join:?}"), "Join(…)");
    }
}
