//! Asking people on a terminal.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};

use holdfast_keys::SecretBytes;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::cli::output::Output;
use crate::error::ClientError;

/// A passphrase from standard input is never longer.
const LINE_MAX_BYTES: usize = 4096;

/// Returns true if stdin is a terminal, so that questions can be asked.
pub(super) fn is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

fn failed(source: std::io::Error) -> ClientError {
    ClientError::File { what: "reading", path: "stdin".into(), source }
}

/// The answer, with the end of its line.
pub(super) fn ask(question: &str) -> Result<String, ClientError> {
    let mut stderr = std::io::stderr();
    write!(stderr, "{question}").and_then(|()| stderr.flush()).map_err(failed)?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(answer)
}

/// Asks without showing what is typed.
pub(super) fn ask_hidden(question: &str) -> Result<Zeroizing<String>, ClientError> {
    let stdin = std::io::stdin();
    let before = tcgetattr(&stdin).ok();
    if let Some(mut hidden) = before.clone() {
        hidden.local_modes.remove(LocalModes::ECHO);
        // If echo cannot be turned off, the answer is visible; asking is still right.
        let _ = tcsetattr(&stdin, OptionalActions::Now, &hidden);
    }
    let answer = ask(question).map(Zeroizing::new);
    if let Some(before) = before {
        let _ = tcsetattr(&stdin, OptionalActions::Now, &before);
        drop(writeln!(std::io::stderr()));
    }
    answer
}

fn line(text: &str) -> SecretBytes {
    SecretBytes::new(text.trim_end_matches(['\n', '\r']).as_bytes().to_vec())
}

/// The passphrase that opens a namespace's key.
pub(super) fn ask_passphrase() -> Result<SecretBytes, ClientError> {
    if !is_terminal() {
        return Err(ClientError::Key(
            "the namespace's key is wrapped by a passphrase: name a file with it with --namespace-key-passphrase-file, or \
             set HOLDFAST_NAMESPACE_KEY_PASSPHRASE"
                .to_owned(),
        ));
    }
    Ok(line(&ask_hidden("Passphrase of the namespace's key: ")?))
}

/// A new passphrase: twice on a terminal, else a line of standard input.
pub(super) fn ask_new_passphrase() -> Result<SecretBytes, ClientError> {
    if !is_terminal() {
        let mut text = Zeroizing::new(String::with_capacity(LINE_MAX_BYTES));
        let most = LINE_MAX_BYTES as u64;
        std::io::stdin().lock().take(most).read_to_string(&mut text).map_err(failed)?;
        return Ok(line(text.lines().next().unwrap_or_default()));
    }
    let first = line(&ask_hidden("New passphrase: ")?);
    if first != line(&ask_hidden("The same again: ")?) {
        return Err(ClientError::Usage("these were two different passphrases".to_owned()));
    }
    Ok(first)
}

/// Returns true if there is someone to ask: a person at the terminal, who has not said yes already.
pub(super) fn is_asked(output: Output, yes: bool) -> bool {
    !yes && !output.json && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks; anything but yes ends the command.
///
/// # Errors
/// [`ClientError::Usage`] when the answer is not yes.
pub(super) fn confirm(question: &str) -> Result<(), ClientError> {
    let fail = |source| ClientError::File { what: "reading", path: "stdin".into(), source };
    let mut stderr = io::stderr();
    let question = holdfast_proto::details::escape_text(question);
    write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush()).map_err(fail)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(fail)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(ClientError::Usage("nothing was changed".to_owned()))
}
