//! `cargo xtask demo`: Holdfast at work on this machine, from building it to the compression details.

mod disks;
mod site;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::needs::{self, DEBUGFS, E2FSCK, MKE2FS};
use crate::server::Server;
use crate::shell::{self, Profile};
use crate::{sparse, web};
use disks::{Studio, VMS};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Leave the server running and the disks in place, and say how to look further
    #[arg(long)]
    keep: bool,
    /// Keep copies in a bucket (an object store in memory, started for this), remove the server's data folder, and make the
    /// server again of the bucket and a recovery kit
    #[arg(long)]
    s3: bool,
    /// Work below this folder instead of the system's folder for temporary files (needs about 3 GB)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Counts the steps and times them.
struct Narrator {
    started: Instant,
    step: u32,
}

impl Narrator {
    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn step<T>(&mut self, title: &str, action: impl FnOnce() -> Result<T>) -> Result<T> {
        self.step += 1;
        println!("\n{}", shell::bold(&format!("{}. {title}", self.step)));
        let started = Instant::now();
        let value = action().with_context(|| format!("step {}: {title}", self.step))?;
        println!("   done in {}", shell::time(started.elapsed()));
        Ok(value)
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "This demo builds Holdfast, starts a server in a temporary folder, makes three VM disks from files of\n\
         this machine, backs them up, changes them, backs them up again and restores one. Nothing outside that\n\
         folder and cargo's is touched{}.",
        if options.keep { "; --keep leaves it in place" } else { ", and it is removed at the end" }
    );
    let missing = needs::provide(&[MKE2FS, DEBUGFS, E2FSCK]);
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|need| need.program).collect();
        bail!("{} missing; see above how to install", names.join(" and "));
    }
    let mut narrator = Narrator { started: Instant::now(), step: 0 };
    if std::env::var_os(shell::BIN_DIR).is_none() {
        narrator.step("Building the web interface", build_web)?;
    }
    let binaries = narrator.step("Building Holdfast (the first time takes minutes)", || {
        let binaries = shell::binaries(Profile::Demo)?;
        println!("   {}/holdfast and holdfast-server", binaries.display());
        Ok(binaries)
    })?;
    let folder = temporary_folder(options.dir.as_deref())?;
    let result = if options.s3 {
        site::show(&mut narrator, &binaries, folder.path(), options.keep)
    } else {
        show(&mut narrator, &binaries, folder.path(), options.keep)
    };
    if options.keep {
        println!("   Folder: {}", folder.keep().display());
    } else if result.is_ok() {
        println!(
            "   {} is removed. `cargo xtask demo --keep{}` leaves it all running.",
            folder.path().display(),
            if options.s3 { " --s3" } else { "" }
        );
    }
    result
}

/// Builds the web interface. Without it the demo continues: the server then has a page that says what is missing.
fn build_web() -> Result<()> {
    let built = match web::obstacle() {
        Some(obstacle) => Err(obstacle),
        None => {
            let install = if web::is_installed() { Ok(()) } else { web::install() };
            install.and_then(|()| web::build()).map_err(|error| format!("{error:#}"))
        }
    };
    match built {
        Ok(()) => println!("   it is in web/dist and goes into the server"),
        Err(why) => println!("   left out, so the server shows a placeholder instead: {why}"),
    }
    Ok(())
}

fn temporary_folder(parent: Option<&Path>) -> Result<tempfile::TempDir> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    fs::create_dir_all(&parent)?;
    let folder = tempfile::Builder::new().prefix("holdfast-demo-").tempdir_in(&parent);
    folder.with_context(|| format!("cannot make a folder in {}; choose another with --dir", parent.display()))
}

fn show(narrator: &mut Narrator, binaries: &Path, folder: &Path, keep: bool) -> Result<()> {
    let server = narrator.step("Starting a server", || {
        let server = Server::start(binaries, &folder.join("repository"), &folder.join("server.log"))?;
        println!("   repository in {}", folder.join("repository").display());
        for (name, value) in server.environment()? {
            println!("   {name}={value}");
        }
        println!("   Web: https://{}/   log in with the token in the file above", server.https());
        println!("   (the browser warns of the self-signed certificate, whose fingerprint is the one above)");
        Ok(server)
    })?;
    let studio =
        narrator.step("Making three VM disks that share an operating system", || Studio::make(folder))?;
    narrator.step("Backing them up for the first time", || back_up_all(&server, &studio))?;
    narrator.step("A day goes by: logs grow, a package is updated, files go", || studio.next_day())?;
    narrator.step("Backing them up again", || back_up_all(&server, &studio))?;
    narrator.step("Restoring a disk and comparing every byte", || restore_and_compare(&server, &studio))?;
    narrator.step("Reading a whole backup back and checking every fingerprint", || {
        holdfast(&server, &["verify", "latest", "--vm", "web"])
    })?;
    narrator.step("What it cost: compression details", || {
        holdfast(&server, &["report"])?;
        println!("\n   What takes most room, worst first:");
        holdfast(&server, &["report", "--worst", "3"])
    })?;
    println!("\n{}", shell::bold(&format!("All done in {}.", shell::time(narrator.elapsed()))));
    look_further(server, keep)
}

fn back_up_all(server: &Server, studio: &Studio) -> Result<()> {
    for vm in VMS {
        let disk = studio.disk(vm.name);
        let disk = disk.to_string_lossy();
        holdfast(server, &["backup", "--vm", vm.name, "--job", "nightly", &disk])?;
    }
    Ok(())
}

/// Runs `holdfast`, showing the command as it would be typed.
fn holdfast(server: &Server, args: &[&str]) -> Result<()> {
    let mut command = server.holdfast(args)?;
    println!("\n   $ {}", shell::line(&command));
    shell::run(&mut command)
}

fn restore_and_compare(server: &Server, studio: &Studio) -> Result<()> {
    let original = studio.disk("db");
    let restored = studio.folder().join("restored-db.raw");
    holdfast(server, &["restore", "latest", "--vm", "db", "--to", &restored.to_string_lossy()])?;
    let bytes = sparse::same(&original, &restored)?;
    println!("   all {bytes} bytes are the same as in {}", original.display());
    disks::check_file_system(&restored)?;
    println!("   and e2fsck finds the restored file system clean");
    fs::remove_file(&restored)?;
    Ok(())
}

fn look_further(server: Server, keep: bool) -> Result<()> {
    if !keep {
        return server.stop();
    }
    let environment = server.environment()?;
    let web = format!("https://{}/", server.https());
    let pid = server.leave_running()?;
    println!("\n{}", shell::bold("The server keeps running. To look further:"));
    for (name, value) in environment {
        println!("   export {name}={value}");
    }
    let bin = shell::target_dir()?.join(Profile::Demo.name());
    println!("   export PATH={}:$PATH", bin.display());
    println!("   holdfast list");
    println!("   holdfast report --format tsv");
    println!("   holdfast estimate FILE-OR-DISK…");
    println!("   holdfast restore latest --vm web --to /tmp/web.raw");
    println!("   Web: {web}   log in with the token that `cat $HOLDFAST_TOKEN_FILE` shows");
    println!("   Stop it with: kill {pid}   and then remove the folder:");
    Ok(())
}
