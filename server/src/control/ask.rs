//! The command's side.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use holdfast_keys::KeyTable;
use holdfast_proto::ErrorCode;

use super::{ANSWER_DEADLINE, ANSWER_MAX_BYTES, Answer, MESSAGE_DEADLINE, Progress, Request, at_socket};
use crate::error::ServiceError;

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
    /// How far its conversion is.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn progress(&self) -> Result<Progress, ServiceError> {
        match self.ask(&Request::Status)? {
            Answer::Progress(progress) => Ok(progress),
            _ => Err(no_answer("another answer came")),
        }
    }

    /// Has it go on with `table`, which was made of the one with number `based_on`.
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
