//! A command whose output is a secret: `age --decrypt`, `gpg --decrypt`, `vault kv get`, `systemd-creds cat`, a cloud's
//! KMS client.
//!
//! [`run`] executes a command without a shell: program and arguments, one a word, so that no character of a path or a
//! secret's name is special; [`run_line`] has a shell execute a line of text, such as `age -d key.age | tail -1`. Its
//! input is empty; its output is one line, without blanks around it; its standard error is quoted when it fails. The
//! command comes from the server's settings, never from a file on a volume.
//!
//! On a timeout, or if it prints too much, it is killed with its whole process group.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use zeroize::Zeroizing;

use crate::secret::SecretBytes;

/// Most bytes of output.
pub const OUTPUT_MAX_BYTES: usize = 4096;
/// Most bytes of standard error that are quoted.
const QUOTED_MAX_BYTES: usize = 1024;
/// Time limit: commands that ask a remote server take seconds.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);
/// How long to wait for a failed command's standard error, if a child of it keeps that open.
const QUOTE_PATIENCE: Duration = Duration::from_secs(10);
/// Interval of checks whether the command has ended, once it has closed its output.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Why a command yielded no secret. Never contains its output.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("the key command is empty")]
    Empty,
    #[error("the key command {program:?} cannot be run: {source}")]
    Run { program: String, source: io::Error },
    #[error("the key command {program:?} failed ({status}): {said}")]
    Failed { program: String, status: ExitStatus, said: String },
    #[error("the key command {program:?} did not end within {} s: {said}", limit.as_secs_f32())]
    Late { program: String, limit: Duration, said: String },
    #[error("the key command {program:?} printed more than {OUTPUT_MAX_BYTES} bytes")]
    TooMuch { program: String },
    #[error("the key command {program:?} printed nothing: {said}")]
    Nothing { program: String, said: String },
    #[error("the key command {program:?} printed {lines} lines instead of one")]
    Lines { program: String, lines: usize },
}

/// Runs `words`, a program and its arguments, for at most `limit`.
///
/// # Errors
/// [`CommandError`].
pub fn run(words: &[String], limit: Duration) -> Result<SecretBytes, CommandError> {
    let (program, _) = words.split_first().ok_or(CommandError::Empty)?;
    run_as(program, words, limit)
}

/// Has a shell run `line`, for at most `limit`. Errors name the program it begins with, and nothing else of it: the
/// rest may be secret.
///
/// # Errors
/// [`CommandError`].
pub fn run_line(line: &str, limit: Duration) -> Result<SecretBytes, CommandError> {
    // The program may be preceded by variables.
    let program = line.split_whitespace().find(|word| !word.contains('=')).ok_or(CommandError::Empty)?;
    run_as(program, &["/bin/sh", "-c", line].map(str::to_owned), limit)
}

/// Runs `words`; errors call the command `name`.
fn run_as(name: &str, words: &[String], limit: Duration) -> Result<SecretBytes, CommandError> {
    let (program, arguments) = words.split_first().ok_or(CommandError::Empty)?;
    let deadline = Instant::now() + limit;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A process group of its own, so that its children are killed with it.
        .process_group(0)
        .spawn()
        .map_err(|source| CommandError::Run { program: name.to_owned(), source })?;
    Running { program: name, child, deadline, limit }.finish()
}

struct Running<'a> {
    program: &'a str,
    child: Child,
    deadline: Instant,
    limit: Duration,
}

impl Running<'_> {
    fn finish(mut self) -> Result<SecretBytes, CommandError> {
        // Standard error is drained, so that a verbose command does not block.
        let said = read_apart(self.child.stderr.take(), QUOTED_MAX_BYTES, true);
        let output = read_apart(self.child.stdout.take(), OUTPUT_MAX_BYTES + 1, false);
        let program = self.program.to_owned();
        let ended = match self.wait(&output) {
            Ok(ended) => ended,
            Err(source) => {
                self.kill();
                return Err(CommandError::Run { program, source });
            }
        };
        let Some((output, status)) = ended else {
            self.kill();
            return Err(CommandError::Late { program, limit: self.limit, said: quoted(&said) });
        };
        if output.len() > OUTPUT_MAX_BYTES {
            self.kill();
            return Err(CommandError::TooMuch { program });
        }
        match status {
            Some(status) if !status.success() => {
                Err(CommandError::Failed { program, status, said: quoted(&said) })
            }
            _ => one_line(program, &output, &said),
        }
    }

    /// Returns its output and exit status; no status if it printed too much. `None`: timeout.
    #[expect(clippy::type_complexity, reason = "used once")]
    fn wait(
        &mut self,
        output: &Receiver<io::Result<Zeroizing<Vec<u8>>>>,
    ) -> io::Result<Option<(Zeroizing<Vec<u8>>, Option<ExitStatus>)>> {
        let output = match output.recv_timeout(self.left()) {
            Ok(output) => output?,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        if output.len() > OUTPUT_MAX_BYTES {
            return Ok(Some((output, None)));
        }
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some((output, Some(status))));
            }
            if self.left().is_zero() {
                return Ok(None);
            }
            thread::sleep(CHECK_INTERVAL.min(self.left()));
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Kills it and its children. It may have ended by itself, which is fine.
    fn kill(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Reads at most `limit` bytes in a thread of its own, and discards the rest if it is to be `drained`. The thread ends
/// with the pipe.
fn read_apart(
    pipe: Option<impl Read + Send + 'static>,
    limit: usize,
    drained: bool,
) -> Receiver<io::Result<Zeroizing<Vec<u8>>>> {
    let (sender, receiver) = channel();
    let work = move || {
        let Some(mut pipe) = pipe else { return };
        let mut bytes = Zeroizing::new(Vec::with_capacity(limit));
        let read = pipe.by_ref().take(limit as u64).read_to_end(&mut bytes);
        // The receiver may have given up.
        let _ = sender.send(read.map(|_| bytes));
        if drained {
            let _ = io::copy(&mut pipe, &mut io::sink());
        }
    };
    // If no thread can be started, the receiver finds its sender gone.
    let _ = thread::Builder::new().name("key-command".to_owned()).spawn(work);
    receiver
}

/// Its standard error so far, on one line.
fn quoted(said: &Receiver<io::Result<Zeroizing<Vec<u8>>>>) -> String {
    // It has ended or was killed, so its pipe is closed, unless a child left its process group; that one is not waited
    // for.
    let Ok(Ok(bytes)) = said.recv_timeout(QUOTE_PATIENCE) else { return "no error message".to_owned() };
    let text = String::from_utf8_lossy(&bytes);
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "no error message".to_owned() } else { words.join(" ") }
}

fn one_line(
    program: String,
    output: &[u8],
    said: &Receiver<io::Result<Zeroizing<Vec<u8>>>>,
) -> Result<SecretBytes, CommandError> {
    let line = output.trim_ascii();
    if line.is_empty() {
        return Err(CommandError::Nothing { program, said: quoted(said) });
    }
    let lines = line.split(|&byte| byte == b'\n').count();
    if lines > 1 {
        return Err(CommandError::Lines { program, lines });
    }
    Ok(SecretBytes::new(line.to_vec()))
}

#[cfg(test)]
mod tests;
