//! Everything that cargo builds for tests, compiled and linted in one pass, and the test programs it leaves.
//!
//! `cargo clippy` would check all dependencies first, for metadata that a build cannot use: half as much work again. The
//! linter is a compiler, so it compiles here, and every later command with the same [`one_pass`] finds all of it built.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell::{self, cargo};

/// Stands in for rustdoc.
const STAND_IN: &str = "xtask/document.sh";

/// A test program, and the folder of its package, where cargo would run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Program {
    /// Parses a line of `cargo --message-format=json`; `None` if it is about anything else.
    pub(crate) fn of_message(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        if message.get("profile")?.get("test")? != true {
            return None;
        }
        let file = message.get("executable")?.as_str()?.into();
        let folder = Path::new(message.get("manifest_path")?.as_str()?).parent()?.to_owned();
        Some(Self { file, folder })
    }

    /// Its name without the hash that cargo appends.
    pub(crate) fn name(&self) -> &str {
        let file = self.file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        file.rsplit_once('-').map_or(file, |(name, _)| name)
    }
}

/// Has cargo compile the workspace with the linter.
pub(crate) fn one_pass(command: &mut Command) -> &mut Command {
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
}

/// Compiles and lints every target; `programs` gets the test programs, even if there are warnings, so that one run
/// shows whatever else is wrong.
///
/// # Errors
/// When something does not compile, or the compiler or the linter complains; their messages are shown.
pub(crate) fn build(programs: &mut Vec<Program>) -> Result<()> {
    let mut command = cargo();
    command.args([
        "build",
        "--workspace",
        "--all-targets",
        "--keep-going",
        "--quiet",
        "--message-format=json",
    ]);
    let output = one_pass(&mut command).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints: Vec<String> = said.lines().filter_map(complaint).collect();
    complaints.iter().for_each(|text| println!("{text}"));
    if !output.status.success() {
        bail!("`{}` ended with {}", shell::line(&command), output.status);
    }
    programs.extend(said.lines().filter_map(Program::of_message));
    if !complaints.is_empty() {
        bail!("a warning is an error here");
    }
    Ok(())
}

/// The text of a warning or error in a line of cargo's; dependencies are not linted.
fn complaint(line: &str) -> Option<String> {
    let message: Value = serde_json::from_str(line).ok()?;
    Some(message.get("message")?.get("rendered")?.as_str()?.to_owned())
}

/// Documents every crate and looks for broken links. Libraries with what [`build`] left, for `cargo doc` would check all
/// dependencies first: cargo gives the examples in their comments to [`STAND_IN`], which documents them instead.
/// This program is no library, and has few dependencies.
///
/// # Errors
/// When rustdoc complains.
pub(crate) fn document() -> Result<()> {
    const FLAGS: &str = "RUSTDOCFLAGS";
    const WARNINGS: &str = "-D warnings";
    let mut libraries = cargo();
    libraries.args(["test", "--doc", "--workspace", "--quiet", "--no-fail-fast"]).env(FLAGS, WARNINGS);
    libraries.env("RUSTDOC", shell::root().join(STAND_IN));
    libraries.env("HOLDFAST_DOCUMENTATION", shell::target_dir()?.join("doc"));
    shell::run(one_pass(&mut libraries))?;
    shell::run(cargo().args(["doc", "--package", "xtask", "--no-deps", "--quiet"]).env(FLAGS, WARNINGS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_found() {
        let line =
            r#"{"reason":"compiler-message","message":{"level":"warning","rendered":"warning: unused"}}"#;
        assert_eq!(complaint(line).as_deref(), Some("warning: unused"));
        assert_eq!(complaint(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn only_test_programs_are_taken() {
        let line = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/r/tests/Cargo.toml","profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let program =
            Program::of_message(&line(true, r#""/r/target/debug/deps/e2e-ccd436439ed351c7""#)).unwrap();
        assert_eq!((program.name(), program.folder.as_path()), ("e2e", Path::new("/r/tests")));
        for other in [line(false, r#""/r/target/debug/holdfast""#), line(true, "null"), "no JSON".to_owned()]
        {
            assert_eq!(Program::of_message(&other), None, "{other}");
        }
    }
}
