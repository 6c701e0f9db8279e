//! `holdfast files`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use holdfast_proto::details::escape_line;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::json;

use super::Context;
use super::boot::installed;
use super::disk_args::{FilesArgs, FilesCommand, Readable};
use super::guestfish::{Guest, PACKAGE, PROGRAM};
use super::readable;
use crate::error::ClientError;
use crate::restore::target::PARTIAL_SUFFIX;

/// Bytes of names that one folder may have: some 10⁷ of them.
const NAMES_MAX_BYTES: usize = 256 << 20;

pub(super) async fn run(context: &Context, files: &FilesArgs) -> Result<ExitCode, ClientError> {
    installed(PROGRAM, PACKAGE)?;
    match &files.command {
        FilesCommand::Ls { readable, path } => {
            let place = path.as_deref().map(Place::parse).transpose()?;
            let Some(guest) = open(context, readable).await? else { return Ok(ExitCode::SUCCESS) };
            let names = blocking(move || list(&guest, place.as_ref())).await?;
            let text = || names.iter().map(|name| format!("{}\n", escape_line(name))).collect();
            context.output.summary(|| json!({ "names": names }), text)?;
        }
        FilesCommand::Tar { readable, path, dest } => {
            let place = Place::parse(path)?;
            let mut target = Target::create(dest)?;
            let Some(guest) = open(context, readable).await? else { return Ok(ExitCode::SUCCESS) };
            let bytes = blocking(move || archive(&guest, &place, &mut target)).await?;
            if dest != Path::new("-") {
                context.output.summary(
                    || json!({ "to": dest, "bytes": bytes }),
                    || format!("Wrote {bytes} bytes to {}.", dest.display()),
                )?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn open(context: &Context, readable: &Readable) -> Result<Option<Guest>, ClientError> {
    let Some(opened) = readable::open(context, readable).await? else { return Ok(None) };
    context.output.note("holdfast: opening the disks; this takes up to a minute without KVM");
    Guest::new(opened, context.cancel.clone()).map(Some)
}

/// Works on a thread that may block, and outlives what it starts: children end with it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ClientError> + Send + 'static,
) -> Result<T, ClientError> {
    let cut_short = ClientError::Internal("reading files was cut short");
    tokio::task::spawn_blocking(work).await.map_err(|_| cut_short)?
}

/// A path within a guest.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// Device of the file system; `None`: as the guest mounts it.
    device: Option<String>,
    path: Vec<u8>,
}

impl Place {
    /// `/PATH`, or `FILE-SYSTEM:/PATH`.
    fn parse(text: &OsStr) -> Result<Self, ClientError> {
        let bytes = text.as_bytes();
        let wrong = || {
            let shown = text.to_string_lossy();
            ClientError::Usage(format!(
                "{shown:?} is no path in a guest: write /etc/hosts, or sda1:/etc/hosts"
            ))
        };
        if bytes.starts_with(b"/") {
            return Ok(Self { device: None, path: bytes.to_vec() });
        }
        let at = bytes.windows(2).position(|pair| pair == b":/").ok_or_else(wrong)?;
        let (device, path) = bytes.split_at_checked(at).ok_or_else(wrong)?;
        let device = std::str::from_utf8(device).map_err(|_| wrong())?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-+.".contains(c);
        if !device
            .split('/')
            .all(|part| !part.is_empty() && !part.starts_with('.') && part.chars().all(is_name))
        {
            return Err(wrong());
        }
        Ok(Self { device: Some(device.to_owned()), path: path.get(1..).ok_or_else(wrong)?.to_vec() })
    }

    /// The script's first line, which makes the path be there.
    fn mount(&self) -> String {
        let device = self
            .device
            .as_ref()
            .map(|device| format!("mount-ro {} /\n", quoted(format!("/dev/{device}").as_bytes())));
        device.unwrap_or_default()
    }
}

/// A word of a script that means just these bytes.
fn quoted(bytes: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    let escaped = bytes
        .iter()
        .map(|byte| if plain(byte) { char::from(*byte).to_string() } else { format!("\\x{byte:02x}") });
    format!("\"{}\"", escaped.collect::<String>())
}

/// Names in a folder, or the file systems there are.
fn list(guest: &Guest, place: Option<&Place>) -> Result<Vec<String>, ClientError> {
    let mut printed = Vec::new();
    let script = match place {
        Some(place) => format!("{}ls0 {} -\n", place.mount(), quoted(&place.path)),
        None => "list-filesystems\n".to_owned(),
    };
    let inspect = place.is_some_and(|place| place.device.is_none());
    guest.run(inspect, &script, &mut |bytes| {
        printed.extend(bytes);
        if printed.len() > NAMES_MAX_BYTES {
            return Err(ClientError::Usage(format!(
                "the folder's names are more than {NAMES_MAX_BYTES} bytes"
            )));
        }
        Ok(())
    })?;
    let end = if place.is_some() { 0 } else { b'\n' };
    let names = printed.split(|byte| *byte == end).filter(|name| !name.is_empty());
    let shown =
        |name: &[u8]| String::from_utf8_lossy(name.strip_prefix(b"/dev/").unwrap_or(name)).into_owned();
    Ok(names.map(shown).collect())
}

/// Writes a folder into an archive. Returns its bytes.
fn archive(guest: &Guest, place: &Place, target: &mut Target) -> Result<u64, ClientError> {
    // A file with holes is no archive of what the disks have; twice as much is more than any honest one.
    let most = guest.size_bytes.saturating_mul(2).saturating_add(64 << 20);
    let mut written = 0u64;
    let (mount, path) = (place.mount(), quoted(&place.path));
    let script = format!("{mount}tar-out {path} - numericowner:true xattrs:true acls:true\n");
    guest.run(place.device.is_none(), &script, &mut |bytes| {
        written = written.saturating_add(bytes.len() as u64);
        if written > most {
            return Err(ClientError::Usage(format!(
                "the archive would have more than {most} bytes, twice what the disks have: files with huge holes are in the \
                 way; name folders without them"
            )));
        }
        target.write(bytes)
    })?;
    target.complete()?;
    Ok(written)
}

/// A file that must not be there before, and has its name when it is complete; or standard output.
struct Target {
    file: Option<File>,
    path: PathBuf,
    partial: PathBuf,
}

impl Target {
    fn create(path: &Path) -> Result<Self, ClientError> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(PARTIAL_SUFFIX);
        let (path, partial) = (path.to_owned(), PathBuf::from(partial));
        if path == Path::new("-") {
            return Ok(Self { file: None, path, partial });
        }
        let exists = |path: &Path| {
            ClientError::Usage(format!("{} already exists; name another file, or remove it", path.display()))
        };
        if path.symlink_metadata().is_ok() {
            return Err(exists(&path));
        }
        match File::options().write(true).create_new(true).mode(0o600).open(&partial) {
            Ok(file) => Ok(Self { file: Some(file), path, partial }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(&partial)),
            Err(source) => Err(ClientError::File { what: "creating", path: partial, source }),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let written = match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => io::stdout().write_all(bytes),
        };
        written.map_err(|source| ClientError::File { what: "writing", path: self.path.clone(), source })
    }

    /// Makes the file durable, then gives it its name.
    fn complete(&mut self) -> Result<(), ClientError> {
        let completed = match &self.file {
            None => io::stdout().flush(),
            Some(file) => file.sync_all().and_then(|()| self.rename()),
        };
        completed.map_err(|source| ClientError::File { what: "completing", path: self.path.clone(), source })
    }

    fn rename(&self) -> io::Result<()> {
        match renameat_with(CWD, &self.partial, CWD, &self.path, RenameFlags::NOREPLACE) {
            // The file system does not know the flag.
            Err(Errno::INVAL | Errno::NOSYS) if !self.path.exists() => {
                std::fs::rename(&self.partial, &self.path)?;
            }
            renamed => renamed?,
        }
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.file.is_some() {
            // Gone already where it was completed.
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn parse(text: &str) -> Option<(Option<String>, String)> {
        let place = Place::parse(&OsString::from(text)).ok()?;
        Some((place.device, String::from_utf8(place.path).unwrap()))
    }

    #[test]
    fn a_path_may_name_its_file_system() {
        let of = |device: &str, path: &str| Some((Some(device.to_owned()), path.to_owned()));
        assert_eq!(parse("/etc/hosts"), Some((None, "/etc/hosts".into())));
        assert_eq!(parse("/srv/a:/b"), Some((None, "/srv/a:/b".into())));
        assert_eq!(parse("sda1:/"), of("sda1", "/"));
        assert_eq!(parse("vg0/root:/srv/x:/y"), of("vg0/root", "/srv/x:/y"));
        for wrong in ["etc/hosts", "sda1:etc", ":/x", "../x:/y", "a//b:/y", "sda1 /:/", "a\n:/", ""] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn no_byte_of_a_path_means_anything_in_a_script() {
        assert_eq!(quoted(b"/a b\"\n!\\\xff"), "\"/a\\x20b\\x22\\x0a\\x21\\x5c\\xff\"");
    }
}
