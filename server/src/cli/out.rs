//! Writing to standard output and standard error. A reader that went away is not a failure.

use std::fmt::Display;
use std::io::{self, Write as _};

/// A line of the result.
pub(super) fn say(line: impl Display) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// As [`say`], where what is written is worth nothing unless it arrives.
///
/// # Errors
/// When it cannot be written, also because the reader went away.
pub(super) fn deliver(line: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush())
}

/// A line for people, beside the result.
pub(super) fn note(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
