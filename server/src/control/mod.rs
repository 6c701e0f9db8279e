//! Requests from commands on this machine to a running server: over a socket in its data folder, which only the
//! server's user and root may open.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | questions and answers; the command's side |
//! | `serve` | the server's side |
//!
//! No secret goes over it. A command that changes keys opens the table of keys as a start does, with what the settings name,
//! changes it in memory, and hands the changed table to the server, in which every key is wrapped. The server takes it over
//! only if it was made of the one that counts, if what *its* settings name opens it, and if no data key is lost by it; then it
//! writes it, and goes on with it (K1). A crash leaves the table before or the one after; the command then does not know which
//! and says so. The socket of a server that crashed is replaced by the next one.

mod serve;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_keys::{KEY_TABLE_MAX_BYTES, KeyTable};
use holdfast_proto::ErrorCode;
use serde::{Deserialize, Serialize};

pub(crate) use crate::control::serve::Control;
use crate::error::ServiceError;

/// Name of the socket, in the data folder.
const SOCKET: &str = "control.sock";

/// A path of a socket has at most 107 bytes.
const PATH_MAX_BYTES: usize = 107;

/// A request's first line: a word and two numbers.
const HEAD_MAX_BYTES: usize = 64;

/// An answer is some lines of text.
const ANSWER_MAX_BYTES: u64 = 64 << 10;

/// Longest time for a request to come, and for an answer to go.
const MESSAGE_DEADLINE: Duration = Duration::from_secs(10);

/// Longest wait for an answer: a key command may take 60 s, and Argon2id and the volume some more.
const ANSWER_DEADLINE: Duration = Duration::from_secs(120);

/// A command's request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Request {
    /// Asks for the progress of the conversion.
    Status,
    /// Asks to go on with this table of keys, which was made of the one with number `based_on`.
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

    /// Parses a first line without its end: the request without its table, and the table's length in bytes.
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

/// Progress of a conversion, as a command shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) done: bool,
    pub(crate) looked_at: u64,
    pub(crate) total: u64,
    /// Blobs and bytes encrypted anew since the server's start.
    pub(crate) converted: u64,
    pub(crate) converted_bytes: u64,
    /// Files that could not be encrypted, and why the first could not.
    pub(crate) left: u64,
    pub(crate) why: Option<String>,
}

/// The server's answer, as one line of JSON.
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

/// A server that runs, and answers.
#[derive(Debug)]
pub(crate) struct Running {
    data_dir: PathBuf,
}

/// The server that has this data folder; `None`: no server can be asked.
pub(crate) fn beside(data_dir: &Path) -> Option<Running> {
    let found = Running { data_dir: data_dir.to_owned() };
    found.progress().is_ok().then_some(found)
}

impl Running {
    /// Asks for the progress of its conversion.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn progress(&self) -> Result<Progress, ServiceError> {
        match self.ask(&Request::Status)? {
            Answer::Progress(progress) => Ok(progress),
            _ => Err(no_answer("another answer came")),
        }
    }

    /// Makes the server go on with `table`, which was made of the one with number `based_on`.
    ///
    /// # Errors
    /// `Busy`: another table counts by now; what else it is refused for; `Unavailable`: it is not known whether the server
    /// took it.
    pub(crate) fn take_over(&self, based_on: u64, table: &KeyTable) -> Result<(), ServiceError> {
        match self.ask(&Request::Keys { based_on, table: table.encode() })? {
            Answer::Taken => Ok(()),
            _ => Err(no_answer("another answer came")),
        }
    }

    fn ask(&self, request: &Request) -> Result<Answer, ServiceError> {
        let mut stream = at_socket(&self.data_dir, |path| UnixStream::connect(path)).map_err(no_answer)?;
        let mut exchange = || {
            stream.set_write_timeout(Some(MESSAGE_DEADLINE))?;
            stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
            stream.write_all(request.head().as_bytes())?;
            if let Request::Keys { table, .. } = request {
                stream.write_all(table)?;
            }
            stream.shutdown(Shutdown::Write)?;
            let mut text = Vec::new();
            (&stream).take(ANSWER_MAX_BYTES).read_to_end(&mut text)?;
            Ok(serde_json::from_slice::<Answer>(&text)?)
        };
        exchange().map_err(|error: std::io::Error| no_answer(error))?.result()
    }
}

fn no_answer(why: impl std::fmt::Display) -> ServiceError {
    ServiceError::new(
        ErrorCode::Unavailable,
        format!(
            "the running server did not answer: {why}. 'holdfast-server key status' says which keys count now, and the \
             server's log may say more"
        ),
    )
}
