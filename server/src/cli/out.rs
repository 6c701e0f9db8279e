//! Writing to standard output and standard error. A reader that went away is not a failure.

use std::fmt::Display;
use std::io::{self, Write as _};

/// A line of the result.
pub(super) fn say(line: impl Display) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// A line for people, beside the result.
pub(super) fn note(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
