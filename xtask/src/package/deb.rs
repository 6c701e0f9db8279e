//! One Debian package: a tree of files and the control files beside it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::needs::LINTIAN;
use crate::shell;

/// Scripts that dpkg runs.
const SCRIPTS: [&str; 4] = ["preinst", "postinst", "prerm", "postrm"];

/// Of files with secrets.
const SECRET: &str = "env";

pub(super) struct Package<'a> {
    pub(super) name: &'a str,
    pub(super) version: &'a str,
    pub(super) architecture: &'a str,
    /// The program, without debug information.
    pub(super) program: &'a Path,
}

impl Package<'_> {
    /// Builds it below `work` and puts it into `folder`.
    pub(super) fn build(&self, work: &Path, folder: &Path) -> Result<()> {
        let from = shell::root().join("deploy/debian").join(self.name);
        let tree = work.join("trees").join(self.name);
        copy(&from.join("root"), &tree)?;
        put(&tree.join("usr/bin").join(self.name), &fs::read(self.program)?, 0o755)?;
        self.put_completions(&tree)?;
        self.put_documents(&tree)?;
        let overrides = from.join("lintian-overrides");
        if overrides.exists() {
            put(&tree.join("usr/share/lintian/overrides").join(self.name), &fs::read(overrides)?, 0o644)?;
        }
        self.put_control(&from, &tree, work)?;
        let deb = folder.join(format!("{}_{}_{}.deb", self.name, self.version, self.architecture));
        let build = ["--root-owner-group", "-Zxz", "--build"];
        shell::capture(Command::new("dpkg-deb").args(build).arg(&tree).arg(&deb))?;
        check(&deb)
    }

    fn put_completions(&self, tree: &Path) -> Result<()> {
        let text = shell::capture(Command::new(self.program).args(["completions", "bash"]))?;
        let folder = tree.join("usr/share/bash-completion/completions");
        put(&folder.join(self.name), text.as_bytes(), 0o644)
    }

    fn put_documents(&self, tree: &Path) -> Result<()> {
        let folder = tree.join("usr/share/doc").join(self.name);
        put(&folder.join("copyright"), &fs::read(shell::root().join("deploy/debian/copyright"))?, 0o644)?;
        let date = shell::capture(Command::new("date").args(["--rfc-email", "--utc"]))?;
        let control =
            fs::read_to_string(shell::root().join("deploy/debian").join(self.name).join("control"))?;
        let maintainer = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
        let changes = format!(
            "{} ({}) unstable; urgency=medium\n\n  * CHANGELOG.md in the sources has all changes.\n\n -- {}  {}",
            self.name,
            self.version,
            maintainer.context("a package has a maintainer")?,
            date
        );
        let path = folder.join("changelog");
        put(&path, changes.as_bytes(), 0o644)?;
        shell::capture(Command::new("gzip").args(["-9", "--no-name"]).arg(path)).map(drop)
    }

    fn put_control(&self, from: &Path, tree: &Path, work: &Path) -> Result<()> {
        let control = tree.join("DEBIAN");
        let bytes: u64 =
            files(tree)?.iter().map(|path| Ok(fs::metadata(path)?.len())).sum::<Result<u64>>()?;
        let text = fs::read_to_string(from.join("control"))?
            .replace("@VERSION@", self.version)
            .replace("@ARCHITECTURE@", self.architecture)
            .replace("@SIZE@", &bytes.div_ceil(1024).to_string())
            .replace("@DEPENDS@", &self.libraries(work)?);
        let sums = md5sums(tree)?;
        put(&control.join("control"), text.as_bytes(), 0o644)?;
        put(&control.join("md5sums"), sums.as_bytes(), 0o644)?;
        for (name, mode) in SCRIPTS.map(|name| (name, 0o755)).into_iter().chain([("conffiles", 0o644)]) {
            let path = from.join(name);
            if path.exists() {
                put(&control.join(name), &fs::read(path)?, mode)?;
            }
        }
        Ok(())
    }

    /// The packages with the libraries that the program needs.
    fn libraries(&self, work: &Path) -> Result<String> {
        // It insists on the sources of a package.
        put(
            &work.join("debian/control"),
            b"Source: holdfast\n\nPackage: holdfast\nArchitecture: any\n",
            0o644,
        )?;
        let mut command = Command::new("dpkg-shlibdeps");
        let said = shell::capture(command.current_dir(work).arg("-O").arg(self.program))?;
        let libraries = said.trim().strip_prefix("shlibs:Depends=");
        Ok(libraries.context("dpkg-shlibdeps says nothing")?.to_owned())
    }
}

/// Has `lintian` look at a package, where it is installed.
fn check(deb: &Path) -> Result<()> {
    let name = deb.file_name().unwrap_or_default().display();
    if shell::locate(LINTIAN.program).is_none() {
        println!("{name}: not checked, for lintian is not installed");
        return Ok(());
    }
    let mut lintian = Command::new(LINTIAN.program);
    // Root builds packages in containers.
    let output = lintian.args(["--fail-on", "error", "--allow-root"]).arg(deb).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.lines().for_each(|line| println!("  {line}"));
    if !output.status.success() {
        bail!("{name}: lintian finds errors\n{}", String::from_utf8_lossy(&output.stderr));
    }
    println!("{name}: lintian finds no errors");
    Ok(())
}

fn put(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let folder = path.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

/// Copies what a package has besides its program; it may have nothing.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    if !from.exists() {
        return Ok(());
    }
    for path in files(from)? {
        let secret = path.extension().is_some_and(|extension| extension == SECRET);
        let mode = if secret { 0o600 } else { 0o644 };
        put(&to.join(path.strip_prefix(from)?), &fs::read(&path)?, mode)?;
    }
    Ok(())
}

/// Every file below a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    entries.sort_unstable();
    for path in entries {
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    Ok(found)
}

fn md5sums(tree: &Path) -> Result<String> {
    let names: Vec<PathBuf> =
        files(tree)?.iter().map(|path| Ok(path.strip_prefix(tree)?.to_owned())).collect::<Result<_>>()?;
    // Configuration is the administrator's.
    let names = names.iter().filter(|name| !name.starts_with("etc"));
    shell::capture(Command::new("md5sum").current_dir(tree).args(names))
}
