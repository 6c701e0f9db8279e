//! Building the web interface, which `holdfast-server` embeds if it is built after it. Without Node.js everything else
//! works; the server then shows a page that says what is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::shell::{self, cargo};

/// Minimum version of web/package.json, as (major, minor).
const NODE_MIN: (u32, u32) = (20, 19);

/// The folder of its sources.
pub(crate) fn folder() -> PathBuf {
    shell::root().join("web")
}

/// Why it cannot be built here; `None` if it can.
pub(crate) fn obstacle() -> Option<String> {
    if !folder().join("package.json").exists() {
        return Some("its sources are not here".to_owned());
    }
    if shell::locate("npm").is_none() {
        return Some("npm is missing (package npm)".to_owned());
    }
    let version = shell::capture(Command::new("node").arg("--version")).unwrap_or_default();
    let version = version.trim();
    if is_enough(version) {
        return None;
    }
    let (major, minor) = NODE_MIN;
    let found =
        if version.is_empty() { "no Node.js answers".to_owned() } else { format!("Node.js is {version}") };
    Some(format!("{found}; {major}.{minor} or newer is needed"))
}

/// Returns true if a version such as `v20.19.2` is new enough.
fn is_enough(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= NODE_MIN,
        _ => false,
    }
}

/// An `npm` command in its folder.
pub(crate) fn npm(args: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(args).current_dir(folder());
    command
}

/// Installs exactly the packages that package-lock.json names.
///
/// # Errors
/// When npm fails, most likely for want of a network.
pub(crate) fn install() -> Result<()> {
    shell::run(&mut npm(&["ci", "--no-audit", "--no-fund"]))
}

/// Lints the sources and prints the findings.
///
/// # Errors
/// When there are findings.
pub(crate) fn lint() -> Result<()> {
    shell::run(&mut npm(&["run", "lint"]))
}

/// Builds `web/dist`.
///
/// # Errors
/// When npm fails.
pub(crate) fn build() -> Result<()> {
    shell::run(&mut npm(&["run", "build"]))
}

/// Writes `web/openapi.json`: the server's test that compares the file with the served one writes it instead, so there
/// is one place that knows the text.
///
/// # Errors
/// When the server does not build.
pub(crate) fn write_openapi() -> Result<()> {
    let test = "http::rest::document::tests::the_copy_for_the_web_ui_is_current";
    let args = ["test", "--quiet", "-p", "holdfast-server", "--lib", "--", "--exact", test];
    shell::run(cargo().args(args).env("HOLDFAST_WRITE_OPENAPI", "1"))
}

/// Returns true if the installed packages are those of package-lock.json, judging by file times.
pub(crate) fn is_installed() -> bool {
    let changed = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    let installed = changed(&folder().join("node_modules/.package-lock.json"));
    installed.is_some_and(|installed| {
        changed(&folder().join("package-lock.json")).is_some_and(|locked| locked <= installed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for enough in ["v20.19.0", "v20.20.2", "v22.1.0", "v100.0.0"] {
            assert!(is_enough(enough), "{enough}");
        }
        for old in ["v20.18.9", "v18.20.0", "v9.99.0", "", "nonsense"] {
            assert!(!is_enough(old), "{old}");
        }
    }

    #[test]
    fn what_is_asked_for_is_what_the_sources_ask_for() {
        let file = std::fs::read_to_string(folder().join("package.json")).unwrap();
        let package: serde_json::Value = serde_json::from_str(&file).unwrap();
        let (major, minor) = NODE_MIN;
        assert_eq!(package["engines"]["node"], format!(">={major}.{minor}"));
    }
}
