//! What commands on this machine ask of a server that runs: over a socket in its data folder, which only the server's user
//! and root may open.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | what is asked and answered |
//! | `ask.rs` | the command's side |
//! | `serve.rs` | the server's side |
//!
//! No secret goes over it. A command that changes keys opens the table of keys as a start does, with what the settings name,
//! changes it in memory, and hands the changed table to the server, in which every key is wrapped. The server takes it over
//! only if it was made of the one that counts, if what *its* settings name opens it, and if no data key is lost by it; then it
//! writes it, and goes on with it (K1). A crash leaves the table before or the one after; the command then does not know which
//! and says so. The socket of a server that crashed is replaced by the next one.

mod ask;
mod serve;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use holdfast_keys::KEY_TABLE_MAX_BYTES;
use holdfast_proto::ErrorCode;
use serde::{Deserialize, Serialize};

pub(crate) use ask::{Running, beside};
pub(crate) use serve::Control;

use crate::error::ServiceError;

/// In the data folder.
const SOCKET: &str = "control.sock";

/// A path of a socket has at most 107 bytes.
const PATH_MAX_BYTES: usize = 107;

/// A request's first line: a word and two numbers.
const HEAD_MAX_BYTES: usize = 64;

/// An answer is some lines of text.
const ANSWER_MAX_BYTES: u64 = 64 << 10;

/// How long a request may take to come, and an answer to go.
const MESSAGE_DEADLINE: Duration = Duration::from_secs(10);

/// How long an answer is waited for: a key command may take 60 s, and Argon2id and the volume some more.
const ANSWER_DEADLINE: Duration = Duration::from_secs(120);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Request {
    /// How far the conversion is.
    Status,
    /// To go on with this table of keys, which was made of the one with number `based_on`.
    Keys { based_on: u64, table: Vec<u8> },
}

impl Request {
    /// The first line, and how many bytes follow it.
    fn head(&self) -> String {
        match self {
            Self::Status => "status\n".to_owned(),
            Self::Keys { based_on, table } => format!("keys {based_on} {}\n", table.len()),
        }
    }

    /// What a first line without its end announces: the request without its table, and how long that is.
    fn parse(head: &[u8]) -> Option<(Self, usize)> {
        let mut words = std::str::from_utf8(head).ok()?.split(' ');
        let found = match words.next()? {
            "status" => (Self::Status, 0),
            "keys" => {
                let based_on = words.next()?.parse().ok()?;
                // Before anything is allocated for it.
                let len = words.next()?.parse().ok().filter(|len| *len <= KEY_TABLE_MAX_BYTES)?;
                (Self::Keys { based_on, table: Vec::new() }, len)
            }
            _ => return None,
        };
        words.next().is_none().then_some(found)
    }
}

/// How far a conversion is, as a command shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) done: bool,
    pub(crate) looked_at: u64,
    pub(crate) total: u64,
    /// Blobs and bytes encrypted anew since the server's start.
    pub(crate) converted: u64,
    pub(crate) converted_bytes: u64,
    /// What could not be, and why the first of it.
    pub(crate) left: u64,
    pub(crate) why: Option<String>,
}

/// What is answered, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Progress(Progress),
    Taken,
    Refused { code: String, message: String },
}

impl Answer {
    fn refused(error: &ServiceError) -> Self {
        Self::Refused { code: error.code.to_string(), message: error.message.clone() }
    }

    fn result(self) -> Result<Self, ServiceError> {
        match self {
            Self::Refused { code, message } => {
                Err(ServiceError::new(code.parse().unwrap_or(ErrorCode::Internal), message))
            }
            answer => Ok(answer),
        }
    }
}

/// Calls `with` with a path of the socket in `folder` that is short enough for one.
fn at_socket<T>(folder: &Path, with: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let path = folder.join(SOCKET);
    if path.as_os_str().len() <= PATH_MAX_BYTES {
        return with(&path);
    }
    let folder = File::open(folder)?;
    with(&Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(SOCKET))
}
