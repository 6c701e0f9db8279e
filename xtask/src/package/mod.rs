//! `cargo xtask package`: two Debian packages, an archive of the agent for any Linux, the debug information apart, and
//! checksums of all, in `target/package`.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | what is made, and of which programs |
//! | `deb` | a package: its tree, its control files, `dpkg-deb`, `lintian` |
//! | `portable` | the agent without libraries |
//!
//! What the packages contain besides the programs is in `deploy/debian`.

mod deb;
mod portable;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::needs::{self, DPKG_DEB, DPKG_SHLIBDEPS, GZIP, LINTIAN, OBJCOPY, STRIP, XZ};
use crate::shell::{self, Profile};
use deb::Package;

/// The two programs, each of which is a package.
const PROGRAMS: [&str; 2] = ["holdfast-server", "holdfast"];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How the programs are built
    #[arg(long, value_enum, default_value = "release")]
    profile: Built,
    /// Version of the packages, instead of that of the workspace
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Leave out the archive of the agent, which is a build of its own
    #[arg(long)]
    debs_only: bool,
    /// Folder to put all into [default: package in cargo's target folder]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

/// How programs are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Built {
    /// As shipped
    Release,
    /// Quickly, for trying out the packages
    Dev,
}

impl Built {
    const fn profile(self) -> Profile {
        match self {
            Self::Release => Profile::Release,
            Self::Dev => Profile::Dev,
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let missing = needs::provide(&[DPKG_DEB, DPKG_SHLIBDEPS, STRIP, OBJCOPY, GZIP, XZ, LINTIAN]);
    // Packages are made without it, and not checked.
    let missing: Vec<_> = missing.iter().filter(|need| need.program != LINTIAN.program).collect();
    if !missing.is_empty() {
        bail!(
            "without {} no package can be made",
            missing.iter().map(|need| need.program).collect::<Vec<_>>().join(", ")
        );
    }
    let folder = match &options.to {
        Some(folder) => std::path::absolute(folder)?,
        None => shell::target_dir()?.join("package"),
    };
    // What an earlier run made would get a checksum, too. Only cargo's own folder is emptied.
    if options.to.is_none() {
        let _ = fs::remove_dir_all(&folder);
    } else if fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty; name a folder that is, or a new one", folder.display());
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let work = tempfile::tempdir_in(&folder)?;
    let version = options.version.clone().unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    let built = shell::binaries(options.profile.profile())?;
    let architecture = shell::capture(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let debug = work.path().join("debug/usr/lib/debug/usr/bin");
    fs::create_dir_all(&debug)?;
    for name in PROGRAMS {
        let program = split(&built.join(name), work.path(), &debug)?;
        let package = Package { name, version: &version, architecture: &architecture, program: &program };
        package.build(work.path(), &folder)?;
    }
    let archive = folder.join(format!("holdfast-debug_{version}_{architecture}.tar.xz"));
    archive_of(&work.path().join("debug"), "usr", &archive)?;
    if !options.debs_only {
        portable::build(options.profile.profile(), &version, work.path(), &folder)?;
    }
    drop(work);
    sum_up(&folder)
}

/// The program without its debug information, which goes to a file that debuggers find by the program's name.
fn split(program: &Path, work: &Path, debug: &Path) -> Result<PathBuf> {
    let name = program.file_name().and_then(|name| name.to_str()).context("a program has a name")?;
    let (stripped, apart) = (work.join(name), debug.join(format!("{name}.debug")));
    shell::capture(Command::new("objcopy").arg("--only-keep-debug").arg(program).arg(&apart))?;
    let sections = ["--remove-section=.comment", "--remove-section=.note"];
    shell::capture(Command::new("strip").args(sections).arg("-o").arg(&stripped).arg(program))?;
    let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
    link.push(&apart);
    shell::capture(Command::new("objcopy").arg(link).arg(&stripped))?;
    Ok(stripped)
}

/// `what` of `folder` as a compressed archive whose files belong to root.
fn archive_of(folder: &Path, what: &str, archive: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--auto-compress", "--owner=0", "--group=0", "--numeric-owner", "--sort=name"]);
    shell::capture(tar.arg("--file").arg(archive).arg("--directory").arg(folder).arg(what)).map(drop)
}

/// Writes the checksums of all that was made, and shows it.
fn sum_up(folder: &Path) -> Result<()> {
    let mut names: Vec<_> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name().into_string().unwrap_or_default()))
        .collect::<Result<_>>()?;
    names.sort_unstable();
    let sums = shell::capture(Command::new("sha256sum").current_dir(folder).args(&names))?;
    fs::write(folder.join("SHA256SUMS"), sums)?;
    println!("\nIn {}:", folder.display());
    for name in names {
        let megabytes = fs::metadata(folder.join(&name))?.len() as f64 / 1e6;
        println!("  {megabytes:8.1} MB  {name}");
    }
    println!("               SHA256SUMS");
    Ok(())
}
