//! A copy of the working tree in which mutations are made, built and tested, one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::table::{Mutation, Test};
use crate::programs::Program;
use crate::scratch::Scratch;
use crate::shell::{self, cargo};
use crate::suite::SLOW;

/// Time limit of a test that a mutation keeps from ending, for `timeout`.
const TIME_LIMIT: &str = "1h";

/// Result of a mutation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The test failed, as it should.
    Killed,
    Survived,
    /// It cannot be made, or its test does not exist.
    DoesNotFit(String),
    DoesNotBuild,
    /// The test ended, but not by failing, or did not end.
    Broke(String),
}

impl Verdict {
    /// Name of the variant, for all mutations alike.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Survived => "survived",
            Self::DoesNotFit(_) => "not fitting",
            Self::DoesNotBuild => "not built",
            Self::Broke(_) => "broke the test program",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed => f.write_str("killed"),
            Self::Survived => f.write_str("SURVIVED: the test passes without the rule"),
            Self::DoesNotFit(why) => write!(f, "DOES NOT FIT: {why}"),
            Self::DoesNotBuild => f.write_str("DOES NOT BUILD, which proves nothing"),
            Self::Broke(how) => write!(f, "BROKE the test program: {how}"),
        }
    }
}

/// The copy of the working tree, and its build.
#[derive(Debug)]
pub(super) struct Workshop {
    tree: PathBuf,
    target: PathBuf,
}

impl Workshop {
    /// Brings the copy up to date. Its earlier build is reused.
    ///
    /// # Errors
    /// When files cannot be listed or copied.
    pub(super) fn open() -> Result<Self> {
        let folder = shell::root().join("target/mutants");
        // A target folder of its own: cargo takes the build of one copy of a crate for that of another.
        let target = folder.join("target");
        let workshop = Self { tree: folder.join("tree"), target };
        workshop.copy()?;
        Ok(workshop)
    }

    /// Copies the files that git tracks or would add. Unchanged files keep their times, so that cargo does not rebuild
    /// them.
    fn copy(&self) -> Result<()> {
        let mut git = Command::new("git");
        git.current_dir(shell::root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let list = shell::capture(&mut git)?;
        let mut files: Vec<&Path> = list.split('\0').filter(|name| !name.is_empty()).map(Path::new).collect();
        files.sort_unstable();
        for file in &files {
            let Ok(bytes) = std::fs::read(shell::root().join(file)) else { continue };
            write(&self.tree.join(file), &bytes)?;
        }
        remove_others(&self.tree, &self.tree, &files)
    }

    /// Checks that every test exists, and passes while nothing is changed.
    ///
    /// # Errors
    /// Names the test program that fails this.
    pub(super) fn check_unchanged(&self, mutations: &[&Mutation]) -> Result<()> {
        let mut programs: BTreeMap<(&str, Option<&str>), BTreeSet<&str>> = BTreeMap::new();
        for Mutation { test, .. } in mutations {
            let names = programs.entry((&test.package, test.binary.as_deref())).or_default();
            names.insert(&test.name);
        }
        for ((package, _), names) in &programs {
            let of_it = |mutation: &&&Mutation| names.contains(mutation.test.name.as_str());
            let test = &mutations.iter().find(of_it).context("a program has a test")?.test;
            let program = self.build(test)?.with_context(|| format!("{package} does not build as it is"))?;
            let (passed, output) = Self::run_tests(&program, names.iter().copied())?;
            if !passed || !output.contains(&format!("test result: ok. {} passed", names.len())) {
                bail!("without any mutation, not all of {names:?} are there and pass:\n{output}");
            }
            println!("{} tests of {package} pass without any mutation", names.len());
        }
        println!();
        Ok(())
    }

    /// Makes the mutation, runs its test, and reverts the mutation.
    ///
    /// # Errors
    /// When files or programs are missing.
    pub(super) fn run(&self, mutation: &Mutation) -> Result<Verdict> {
        let file = self.tree.join(&mutation.file);
        let sound =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let changed = mutation.apply(&sound).map_err(anyhow::Error::msg)?;
        write(&file, changed.as_bytes())?;
        let verdict = self.judge(&mutation.test);
        write(&file, sound.as_bytes())?;
        verdict
    }

    fn judge(&self, test: &Test) -> Result<Verdict> {
        let Some(program) = self.build(test)? else { return Ok(Verdict::DoesNotBuild) };
        let (passed, output) = Self::run_tests(&program, [test.name.as_str()])?;
        Ok(if passed {
            Verdict::Survived
        } else if output.contains("test result: FAILED") {
            Verdict::Killed
        } else {
            Verdict::Broke(output.lines().last().unwrap_or_default().to_owned())
        })
    }

    /// Builds the program that contains a test; `None` if it does not compile.
    fn build(&self, test: &Test) -> Result<Option<Program>> {
        let mut command = cargo();
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        command.args(["test", "--quiet", "--no-run", "--message-format=json", "-p", &test.package]);
        match &test.binary {
            Some(binary) => command.args(["--test", binary]),
            None => command.arg("--lib"),
        };
        let output = command.stderr(Stdio::null()).output().context("cannot run cargo")?;
        if !output.status.success() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let program = text.lines().find_map(Program::of_message);
        Ok(Some(program.context("cargo named no test program")?))
    }

    /// Runs the tests. Returns whether they passed, and their output.
    fn run_tests<'a>(program: &Program, names: impl IntoIterator<Item = &'a str>) -> Result<(bool, String)> {
        let mut command = Command::new("timeout");
        command.args(["--verbose", "--kill-after=10", TIME_LIMIT]).arg(&program.file);
        // The folder where cargo runs tests.
        command.current_dir(&program.folder).arg("--exact").args(names);
        // A mutation may need the last of a test's crashes; of power losses, 4,000 are enough for each.
        command.env(SLOW, "1").env("HOLDFAST_CRASHES", "4000");
        command.env("RUST_BACKTRACE", "0").stdin(Stdio::null());
        let scratch = Scratch::in_memory();
        let output = scratch.give_to(&mut command).output();
        let output = output.with_context(|| format!("cannot run {}", program.file.display()))?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    }
}

/// Writes a file unless it has that content already.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    let folder = path.parent().context("a file is in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Removes files that are no longer in the working tree.
fn remove_others(folder: &Path, tree: &Path, files: &[&Path]) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry.context("cannot list a folder")?.path();
        if path.is_dir() {
            remove_others(&path, tree, files)?;
        } else if path.strip_prefix(tree).is_ok_and(|below| files.binary_search(&below).is_err()) {
            std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}
