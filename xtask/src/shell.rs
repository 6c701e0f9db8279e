//! Running other programs, and showing their commands.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// `cargo` as it was called, run in the repository's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// A command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| {
            let word = word.to_string_lossy();
            if word.is_empty() || word.contains(|c: char| c.is_whitespace() || "'\"$*?<>|&;()".contains(c)) {
                format!("'{}'", word.replace('\'', "'\\''"))
            } else {
                word.into_owned()
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs a command with its output going to this program's.
///
/// # Errors
/// When it cannot be started or ends in failure.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", line(command)))?;
    if !status.success() {
        bail!("`{}` ended with {status}", line(command));
    }
    Ok(())
}

/// Runs a command and returns what it wrote to standard output; shows the rest only when it fails.
///
/// # Errors
/// When it cannot be started or ends in failure.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", line(command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` ended with {}:\n{}", line(command), output.status, stderr.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Path of a program: in `PATH`, or in the system folders that Debian leaves out of a user's `PATH`.
pub(crate) fn locate(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok())
}

/// The folder of cargo's build output.
///
/// # Errors
/// When `cargo metadata` fails.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let text = capture(cargo().args(["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&text).context("cargo metadata is not JSON")?;
    let folder = metadata.get("target_directory").and_then(serde_json::Value::as_str);
    Ok(folder.context("cargo metadata names no target_directory")?.into())
}

/// Environment variable that names a folder with built programs.
pub(crate) const BIN_DIR: &str = "HOLDFAST_BIN_DIR";

/// Profile that `holdfast` and `holdfast-server` are built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As shipped.
    Release,
    /// Without link-time optimisation: built sooner, nearly as fast.
    Demo,
    /// For tests.
    Dev,
}

impl Profile {
    /// Its name in Cargo.toml.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Demo => "demo",
            Self::Dev => "dev",
        }
    }

    /// The name of its folder.
    pub(crate) const fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            other => other.name(),
        }
    }
}

/// The folder with `holdfast` and `holdfast-server`: `$HOLDFAST_BIN_DIR`, or else cargo's, where they are built first.
///
/// # Errors
/// When the build fails.
pub(crate) fn binaries(profile: Profile) -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os(BIN_DIR) {
        return Ok(folder.into());
    }
    let name = profile.name();
    run(cargo().args(["build", "--profile", name, "-p", "holdfast", "-p", "holdfast-server", "--bins"]))?;
    Ok(target_dir()?.join(profile.folder()))
}

/// An example program of the storage engine: in `examples` below `$HOLDFAST_BIN_DIR`, or else built first, with the
/// release profile.
///
/// # Errors
/// When the build fails.
pub(crate) fn example(name: &str) -> Result<PathBuf> {
    example_of("holdfast-engine", name, Profile::Release)
}

/// Same as [`example`], for another crate.
///
/// # Errors
/// When the build fails.
pub(crate) fn example_of(package: &str, name: &str, profile: Profile) -> Result<PathBuf> {
    let folder = match std::env::var_os(BIN_DIR) {
        Some(folder) => PathBuf::from(folder),
        None => {
            run(cargo().args(["build", "--profile", profile.name(), "-p", package, "--example", name]))?;
            target_dir()?.join(profile.folder())
        }
    };
    Ok(folder.join("examples").join(name))
}

/// "4.2 s" or "3 min 05 s".
pub(crate) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

/// `text` in bold on a terminal.
pub(crate) fn bold(text: &str) -> String {
    if std::io::stdout().is_terminal() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_can_be_pasted_into_a_shell() {
        let mut command = Command::new("/usr/bin/holdfast");
        command.args(["backup", "--vm", "web 01", "it's"]);
        assert_eq!(line(&command), r"holdfast backup --vm 'web 01' 'it'\''s'");
    }

    #[test]
    fn failures_say_what_the_program_said() {
        let error = capture(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("why"), "{error}");
        assert_eq!(capture(Command::new("sh").args(["-c", "echo out"])).unwrap(), "out\n");
        assert!(locate("sh").is_some());
        assert!(locate("surely-no-such-program").is_none());
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(time(Duration::from_millis(4240)), "4.2 s");
        assert_eq!(time(Duration::from_secs(185)), "3 min 05 s");
    }
}
