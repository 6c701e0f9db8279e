//! The Debian packages, in a Debian system that has nothing else: installed, joined, used, upgraded, removed and purged.
//! Without systemd, as in a container. Takes minutes and the packages of a bare system, so `cargo xtask test --slow` runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_tests::{tools, xtask};
use tempfile::tempdir;

/// Set by `cargo xtask test --slow`.
const SLOW: &str = "HOLDFAST_SLOW_TESTS";

/// What an administrator types, in the bare system; each part ends with what must hold.
const SCRIPT: &str = include_str!("packages/administrator.sh");

/// Where the system's packages come from, and what its release is called: as of this machine.
fn origin() -> Option<(String, String)> {
    let apt_get = tools::find("apt-get")?;
    let (fine, said) = tools::run(&apt_get, &["indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)"]);
    let found = said.lines().filter(|_| fine).find_map(|line| {
        let [site, release, "main"] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        (!release.contains(['-', '/'])).then(|| (site.to_owned(), release.to_owned()))
    });
    if found.is_none() {
        tools::skip("apt knows no Debian here");
    }
    found
}

/// A minimal Debian system in `root`; `None`, said aloud, where none can be made.
fn bare_system(root: &Path) -> Option<()> {
    if !rustix::process::geteuid().is_root() {
        tools::skip("only root can make a system in a folder");
        return None;
    }
    let (debootstrap, (site, release)) = (tools::find("debootstrap")?, origin()?);
    let args = ["--variant=minbase", &release, root.to_str()?, &site];
    let (fine, said) = tools::run(&debootstrap, &args);
    assert!(fine, "{said}");
    Some(())
}

/// Packages of this version of the programs under test, called `version`.
fn packages(version: &str, to: &Path) -> Vec<PathBuf> {
    let mut command = xtask();
    command.args(["package", "--debs-only", "--version", version, "--to"]).arg(to);
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{}", said.concat());
    let entries = fs::read_dir(to).unwrap().map(|entry| entry.unwrap().path());
    let debs: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "deb")).collect();
    assert_eq!(debs.len(), 2, "{debs:?}");
    debs
}

#[test]
fn packages_are_installed_joined_upgraded_and_removed() {
    if std::env::var_os(SLOW).is_none() {
        return;
    }
    let (Some(unshare), Some(_)) = (tools::find("unshare"), tools::find("ip")) else { return };
    let folder = tempdir().unwrap();
    let root = folder.path().join("root");
    if bare_system(&root).is_none() {
        return;
    }
    for (name, version) in [("first", "0.1.0"), ("second", "0.1.1")] {
        let into = root.join("packages").join(name);
        fs::create_dir_all(&into).unwrap();
        for deb in packages(version, &folder.path().join(name)) {
            fs::copy(&deb, into.join(deb.file_name().unwrap())).unwrap();
        }
    }
    fs::write(root.join("administrator.sh"), SCRIPT).unwrap();
    // A network of its own: its ports are the packages', whatever runs here. And processes that end with it.
    let enter =
        "ip link set lo up && ip address add 192.0.2.1/32 dev lo && exec chroot \"$0\" sh /administrator.sh";
    let output = Command::new(unshare)
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter])
        .arg(&root)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let said = said.concat();
    assert!(output.status.success() && said.contains("ALL DONE"), "{said}");
}
