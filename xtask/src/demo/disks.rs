//! VM disks for the demo: ext4 file systems made of files of this machine, without root.
//!
//! The three share an operating system, each has programs and data of its own, and a day's changes are made inside the
//! file systems (`debugfs -w`), as a running VM would make them: unchanged data stays in place.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::needs::{DEBUGFS, E2FSCK, MKE2FS};
use crate::shell;
use crate::splitmix::SplitMix64;

/// A VM of the demo.
#[derive(Debug)]
pub(super) struct Vm {
    pub(super) name: &'static str,
    /// Size of its disk in MiB; each differs, so that the file systems lay files out differently.
    disk_mib: u64,
    /// Source folder of the programs that only this VM has, and their size limit, in MB.
    own: (&'static str, u64),
    /// Log lines and table rows at first, in thousands.
    log_klines: u32,
    table_krows: u32,
}

/// The VMs.
pub(super) const VMS: [Vm; 3] = [
    Vm { name: "web", disk_mib: 2048, own: ("/usr/share", 40), log_klines: 300, table_krows: 0 },
    Vm { name: "db", disk_mib: 2560, own: ("/usr/lib/python3", 30), log_klines: 20, table_krows: 600 },
    Vm { name: "build", disk_mib: 3072, own: ("/usr/include", 60), log_klines: 50, table_krows: 0 },
];

/// Source folders of the shared operating system, with their size limits, in MB.
const SYSTEM: [(&str, u64); 4] = [("/etc", 10), ("/usr/bin", 110), ("/usr/lib", 170), ("/usr/share", 50)];

/// Larger files are left out, so that many files fill the bounds above.
const FILE_MAX_BYTES: u64 = 32_000_000;

/// The folder where disks are made and kept.
#[derive(Debug)]
pub(super) struct Studio {
    folder: PathBuf,
}

impl Studio {
    /// Makes the disks in `folder`.
    pub(super) fn make(folder: &Path) -> Result<Self> {
        let studio = Self { folder: folder.to_owned() };
        let stage = folder.join("stage");
        let mut system = 0;
        for (source, max_mb) in SYSTEM {
            system += copy_some(Path::new(source), &stage.join(&source[1..]), max_mb * 1_000_000)?;
        }
        println!(
            "   {} MB of /etc, /usr/bin, /usr/lib and /usr/share are the operating system",
            system / 1_000_000
        );
        for (seed, vm) in (1..).zip(VMS) {
            let own = stage.join("srv");
            let bytes = copy_some(Path::new(vm.own.0), &own.join("app"), vm.own.1 * 1_000_000)?;
            fs::create_dir_all(stage.join("var/log"))?;
            fs::write(stage.join("etc/hostname"), vm.name)?;
            fs::write(stage.join("usr/bin/tool"), program(false)?)?;
            fs::write(stage.join("var/log/access.log"), log_lines(seed, vm.log_klines * 1000, 0))?;
            fs::write(own.join("table.dat"), table_rows(seed, vm.table_krows * 1000))?;
            studio.make_file_system(&vm, &stage)?;
            let used = allocated_bytes(&studio.disk(vm.name))?;
            println!(
                "   {:<5} {} MiB disk, {} MB used, {} MB of programs of its own",
                vm.name,
                vm.disk_mib,
                used / 1_000_000,
                bytes / 1_000_000
            );
            fs::remove_dir_all(&own)?;
        }
        fs::remove_dir_all(&stage)?;
        Ok(studio)
    }

    /// The folder of the disks.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Path of a VM's disk.
    pub(super) fn disk(&self, vm: &str) -> PathBuf {
        self.folder.join(format!("{vm}.raw"))
    }

    fn make_file_system(&self, vm: &Vm, stage: &Path) -> Result<()> {
        let mut mke2fs = Command::new(shell::locate(MKE2FS.program).context("no mke2fs")?);
        mke2fs.args(["-q", "-F", "-t", "ext4", "-L", vm.name, "-E", "root_owner=0:0", "-d"]).arg(stage);
        mke2fs.arg(self.disk(vm.name)).arg(format!("{}M", vm.disk_mib));
        shell::capture(&mut mke2fs).map(drop)
    }

    /// Makes a day's changes on every disk.
    pub(super) fn next_day(&self) -> Result<()> {
        let news = self.folder.join("news");
        fs::create_dir_all(&news)?;
        for (seed, vm) in (1..).zip(VMS) {
            let mut script = String::new();
            let mut put = |name: &str, bytes: &[u8], to: &str| -> Result<()> {
                let file = news.join(name);
                fs::write(&file, bytes)?;
                // debugfs does not overwrite: an existing file is removed first (and may not exist, which is fine).
                script.push_str(&format!("rm {to}\nwrite \"{}\" {to}\n", file.display()));
                Ok(())
            };
            // The log is appended to, as a growing file is.
            let mut log = log_lines(seed, vm.log_klines * 1000, 0);
            log.extend(log_lines(seed + 100, vm.log_klines * 200, 1));
            put("access.log", &log, "/var/log/access.log")?;
            let mut table = table_rows(seed, vm.table_krows * 1000);
            update_rows(&mut table, seed);
            put("table.dat", &table, "/srv/table.dat")?;
            put("tool", &program(true)?, "/usr/bin/tool")?;
            put("upload.bin", &noise(seed, 3_000_000), "/srv/upload.bin")?;
            script.push_str("rm /etc/hostname\n");
            let commands = self.folder.join("news/debugfs");
            fs::write(&commands, &script)?;
            let mut debugfs = Command::new(shell::locate(DEBUGFS.program).context("no debugfs")?);
            shell::capture(debugfs.arg("-w").arg("-f").arg(&commands).arg(self.disk(vm.name)))?;
            check_file_system(&self.disk(vm.name))?;
            println!("   {:<5} changed, and e2fsck finds its file system clean", vm.name);
        }
        fs::remove_dir_all(&news)?;
        Ok(())
    }
}

/// Copies readable regular files, links and folders below `from`, in order of name, until the first file
/// that would make it more than `max_bytes`; returns how many bytes were copied.
fn copy_some(from: &Path, to: &Path, max_bytes: u64) -> Result<u64> {
    let mut left = max_bytes;
    copy_folder(from, to, &mut left)?;
    Ok(max_bytes - left)
}

/// Returns true if there is room for more.
fn copy_folder(from: &Path, to: &Path, left: &mut u64) -> Result<bool> {
    // A folder that is missing or cannot be read contributes nothing.
    let Ok(entries) = fs::read_dir(from) else { return Ok(true) };
    let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    fs::create_dir_all(to)?;
    for entry in entries {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let Ok(metadata) = fs::symlink_metadata(&source) else { continue };
        if metadata.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else if metadata.is_dir() {
            if !copy_folder(&source, &target, left)? {
                return Ok(false);
            }
        } else if metadata.is_file() && metadata.len() <= FILE_MAX_BYTES {
            if metadata.len() > *left {
                return Ok(false);
            }
            // Files that only others may read are left out.
            if fs::copy(&source, &target).is_ok() {
                *left -= metadata.len();
            }
        }
    }
    Ok(true)
}

fn log_lines(seed: u64, lines: u32, day: u32) -> Vec<u8> {
    let mut random = SplitMix64(seed);
    let mut text = Vec::new();
    for line in 0..lines {
        let roll = random.next();
        let (host, item, size) = (roll & 0xFF, (roll >> 8) & 0xFFFF, (roll >> 24) & 0xFFFF);
        let (minute, second) = (line / 60 % 60, line % 60);
        // Writing to memory cannot fail.
        drop(writeln!(
            text,
            "10.0.{}.{host} - - [{:02}/Nov/2026:0{day}:{minute:02}:{second:02}] \"GET /item/{item} HTTP/1.1\" 200 {size}",
            host / 4,
            21 + day
        ));
    }
    text
}

/// Length of a row: 100 bytes, half of them random, as in a table of a database.
const ROW_BYTES: usize = 100;

fn table_rows(seed: u64, rows: u32) -> Vec<u8> {
    let mut random = SplitMix64(seed ^ 0xDB);
    let mut table = Vec::new();
    for row in 0..rows {
        let values: Vec<u8> = (0..6).flat_map(|_| random.next().to_le_bytes()).collect();
        table.extend_from_slice(format!("row {row:<12}{:36}", "").as_bytes());
        table.extend_from_slice(&values);
    }
    table
}

/// Changes one row in 2,000.
fn update_rows(table: &mut [u8], seed: u64) {
    let mut random = SplitMix64(seed ^ 0x0DD);
    for row in table.chunks_exact_mut(ROW_BYTES) {
        let roll = random.next();
        if roll.is_multiple_of(2000)
            && let Some(last) = row.last_chunk_mut::<8>()
        {
            *last = roll.to_le_bytes();
        }
    }
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = SplitMix64(seed ^ 0xABCD);
    std::iter::repeat_with(|| random.next().to_le_bytes()).flatten().take(bytes).collect()
}

/// A program (this one) before an update, and after: another head and tail, the same middle.
fn program(updated: bool) -> Result<Vec<u8>> {
    let mut program = fs::read(std::env::current_exe()?)?;
    if updated {
        program.splice(0..0, noise(6, 10_000));
        program.extend(noise(7, 100_000));
    }
    Ok(program)
}

fn allocated_bytes(file: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata(file)?.blocks() * 512)
}

/// Checks a file system with e2fsck; changes nothing.
pub(super) fn check_file_system(image: &Path) -> Result<()> {
    let program = shell::locate(E2FSCK.program).context("no e2fsck")?;
    shell::capture(Command::new(program).args(["-f", "-n"]).arg(image)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        fs::create_dir_all(from.join("sub")).unwrap();
        for name in ["a", "b", "sub/c", "z"] {
            fs::write(from.join(name), [1; 1000]).unwrap();
        }
        std::os::unix::fs::symlink("nowhere", from.join("link")).unwrap();
        let to = folder.path().join("to");
        assert_eq!(copy_some(&from, &to, 3500).unwrap(), 3000);
        assert!(to.join("sub/c").exists() && !to.join("z").exists(), "the fourth does not fit");
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("nowhere"));
    }

    #[test]
    fn a_day_changes_little_of_a_table() {
        let before = table_rows(1, 10_000);
        assert_eq!(before.len(), 10_000 * ROW_BYTES);
        let mut after = before.clone();
        update_rows(&mut after, 1);
        let changed = before.chunks(ROW_BYTES).zip(after.chunks(ROW_BYTES)).filter(|(a, b)| a != b).count();
        assert!((1..50).contains(&changed), "{changed} rows changed");
    }
}
