//! Asking a person before something is done that cannot be undone.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use super::output::Output;
use crate::error::ClientError;

/// Whether there is someone to ask: a person at the terminal, who has not said yes already.
pub(super) fn is_asked(output: Output, yes: bool) -> bool {
    !yes && !output.json && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks; anything but yes ends the command.
///
/// # Errors
/// [`ClientError::Usage`] when the answer is not yes.
pub(super) fn ask(question: &str) -> Result<(), ClientError> {
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
