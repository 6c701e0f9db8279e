//! Programs of the system that a command needs: says which and why, installs them where it may, and
//! otherwise says exactly what is missing.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::shell;

/// A program, the Debian package that has it, and what it is needed for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
    pub(crate) why: &'static str,
}

/// Makes ext4 file systems from folders, without being root.
pub(crate) const MKE2FS: Need =
    Need { program: "mke2fs", package: "e2fsprogs", why: "makes VM disks with a file system" };
/// Changes files inside a file system image, without being root.
pub(crate) const DEBUGFS: Need =
    Need { program: "debugfs", package: "e2fsprogs", why: "changes files inside VM disks" };
/// Checks a restored file system.
pub(crate) const E2FSCK: Need =
    Need { program: "e2fsck", package: "e2fsprogs", why: "checks restored file systems" };
/// Compares disk images independently of our own code.
pub(crate) const QEMU_IMG: Need =
    Need { program: "qemu-img", package: "qemu-utils", why: "a second opinion on disk images" };
/// Opens images of disks.
pub(crate) const QEMU_NBD: Need =
    Need { program: "qemu-nbd", package: "qemu-utils", why: "backs up images of disks" };
/// Reads exports, as a program that others wrote.
pub(crate) const NBDCOPY: Need =
    Need { program: "nbdcopy", package: "libnbd-bin", why: "a second opinion on exports" };
/// Boots exports.
pub(crate) const QEMU: Need =
    Need { program: "qemu-system-x86_64", package: "qemu-system-x86", why: "boots restore points" };
/// Reads files out of restore points.
pub(crate) const GUESTFISH: Need =
    Need { program: "guestfish", package: "libguestfs-tools", why: "reads files out of restore points" };
/// Lets calls of the system fail, and ends programs at chosen ones.
pub(crate) const STRACE: Need =
    Need { program: "strace", package: "strace", why: "disks that fail, and kills in the middle of a write" };
/// Sets the clock of one program.
pub(crate) const FAKETIME: Need =
    Need { program: "faketime", package: "faketime", why: "a clock that jumps while the server runs" };
/// Tries alerts.
pub(crate) const PROMTOOL: Need =
    Need { program: "promtool", package: "prometheus", why: "scrapes a server, and makes each alert fire" };
/// Asks a server over HTTPS.
pub(crate) const CURL: Need = Need { program: "curl", package: "curl", why: "times answers over HTTPS" };
/// Sets up network devices.
pub(crate) const IP: Need = Need { program: "ip", package: "iproute2", why: "sets up both ends of a line" };
/// Makes network namespaces.
pub(crate) const UNSHARE: Need =
    Need { program: "unshare", package: "util-linux", why: "makes network namespaces" };
/// Runs programs in them.
pub(crate) const NSENTER: Need =
    Need { program: "nsenter", package: "util-linux", why: "runs programs in network namespaces" };
/// Ties programs to this one.
pub(crate) const SETPRIV: Need = Need {
    program: "setpriv",
    package: "util-linux",
    why: "ends programs with the command that started them",
};
/// For the web interface's own tests.
pub(crate) const NPM: Need =
    Need { program: "npm", package: "npm", why: "builds and tests the web interface" };
/// Makes Debian packages.
pub(crate) const DPKG_DEB: Need = Need { program: "dpkg-deb", package: "dpkg", why: "makes Debian packages" };
/// Finds the packages of a program's libraries.
pub(crate) const DPKG_SHLIBDEPS: Need =
    Need { program: "dpkg-shlibdeps", package: "dpkg-dev", why: "says which libraries a package depends on" };
/// Takes debug information out of a program.
pub(crate) const STRIP: Need =
    Need { program: "strip", package: "binutils", why: "takes debug information out of programs" };
/// Puts it into a file of its own.
pub(crate) const OBJCOPY: Need =
    Need { program: "objcopy", package: "binutils", why: "puts debug information into files of its own" };
/// Compresses changelogs.
pub(crate) const GZIP: Need = Need { program: "gzip", package: "gzip", why: "compresses changelogs" };
/// Compresses archives.
pub(crate) const XZ: Need = Need { program: "xz", package: "xz-utils", why: "compresses archives" };
/// Checks Debian packages.
pub(crate) const LINTIAN: Need =
    Need { program: "lintian", package: "lintian", why: "checks Debian packages" };
/// Makes a Debian system in a folder.
pub(crate) const DEBOOTSTRAP: Need = Need {
    program: "debootstrap",
    package: "debootstrap",
    why: "makes a Debian system to install packages in",
};
/// A browser for the web interface's tests.
pub(crate) const CHROMIUM: Need =
    Need { program: "chromium", package: "chromium", why: "runs the web interface's browser tests" };

/// Says what `needs` are, installs those that are missing when allowed to, and returns those that are
/// missing still.
pub(crate) fn provide(needs: &[Need]) -> Vec<Need> {
    println!("Needs from the system:");
    for need in needs {
        let state = if present(need) { "found" } else { "missing" };
        println!("  {:<10} {state:<8} {} (package {})", need.program, need.why, need.package);
    }
    let mut packages: Vec<_> = missing(needs).iter().map(|need| need.package).collect();
    packages.sort_unstable();
    packages.dedup();
    if packages.is_empty() {
        return Vec::new();
    }
    match installer() {
        Some(prefix) => install(&prefix, &packages),
        None => println!("  Neither root nor able to use sudo without a password, so nothing is installed."),
    }
    let still = missing(needs);
    if !still.is_empty() {
        println!("  To install what is missing: sudo apt-get install {}", packages.join(" "));
    }
    still
}

/// Fails when something is missing that could have been installed here: then nothing excuses tests that leave it out.
///
/// # Errors
/// Naming what is missing.
pub(crate) fn insist(missing: &[Need]) -> Result<()> {
    let names: Vec<_> = missing.iter().map(|need| need.program).collect();
    if names.is_empty() {
        println!("nothing is missing");
    } else if installer().is_none() {
        println!("{} cannot be installed from here; tests that lack it are skipped", names.join(", "));
    } else {
        bail!("{} could not be installed: see the beginning of the output", names.join(", "));
    }
    Ok(())
}

fn present(need: &Need) -> bool {
    shell::locate(need.program).is_some()
}

fn missing(needs: &[Need]) -> Vec<Need> {
    needs.iter().filter(|need| !present(need)).copied().collect()
}

/// What to put before `apt-get`, or `None` when packages cannot be installed from here.
fn installer() -> Option<Vec<&'static str>> {
    shell::locate("apt-get")?;
    if rustix::process::geteuid().is_root() {
        return Some(Vec::new());
    }
    let mut sudo = Command::new("sudo");
    let quiet = sudo.args(["-n", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success()).then(|| vec!["sudo", "-n"])
}

fn install(prefix: &[&str], packages: &[&str]) {
    let command = |args: &[&str]| {
        let words: Vec<&str> = [prefix, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"], args].concat();
        let (program, rest) = words.split_first()?;
        let mut command = Command::new(program);
        command.args(rest);
        println!("  $ {}", shell::line(&command));
        shell::capture(&mut command).inspect_err(|error| println!("  {error:#}")).ok()
    };
    let install = [&["install", "-y", "-qq", "--no-install-recommends"], packages].concat();
    // Package lists may be missing (containers) or stale; they are fetched only when that shows.
    if command(&install).is_none() && command(&["update", "-qq"]).is_some() {
        command(&install);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_there_is_missing() {
        let shell = Need { program: "sh", package: "dash", why: "tests" };
        let none = Need { program: "surely-no-such-program", package: "none", why: "tests" };
        let left: Vec<_> = missing(&[shell, none]).iter().map(|need| need.program).collect();
        assert_eq!(left, ["surely-no-such-program"]);
    }
}
