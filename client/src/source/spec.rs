//! `[NAME=]PATH` and `NAME=ADDRESS` on the command line.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use holdfast_nbd::Address;
use holdfast_proto::limits::{DISKS_PER_BACKUP_MAX, check_name};

use super::SourceError;

/// A disk as named on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskArgument {
    pub name: String,
    /// A path, or the [address](Self::address) of an export.
    pub path: PathBuf,
}

impl DiskArgument {
    /// Parses `NAME=PATH` or `PATH`. The part before the first `=` is a name unless it contains a `/`, so a
    /// path with `=` in it can be written `./a=b.raw`. Without a name, the disk is named after the file,
    /// without its last extension.
    ///
    /// # Errors
    /// [`SourceError::Argument`] when there is no usable name or no path.
    pub fn parse(argument: &OsStr) -> Result<Self, SourceError> {
        let wrong = |why: String| {
            SourceError::Argument(format!("{}: {why}; write NAME=PATH", argument.to_string_lossy()))
        };
        let bytes = argument.as_bytes();
        let split = bytes.iter().position(|&byte| byte == b'=').map(|at| bytes.split_at(at));
        let (name, path) = match split {
            Some((name, rest)) if !name.contains(&b'/') => {
                let name =
                    std::str::from_utf8(name).map_err(|_| wrong("the name is not valid UTF-8".to_owned()))?;
                let path = PathBuf::from(OsString::from_vec(rest.get(1..).unwrap_or_default().to_vec()));
                (name.to_owned(), path)
            }
            _ if Address::begins(bytes) => return Err(wrong("an address gives a disk no name".to_owned())),
            _ => {
                let path = PathBuf::from(argument);
                (name_of(&path).ok_or_else(|| wrong("the disk cannot be named after it".to_owned()))?, path)
            }
        };
        if path.as_os_str().is_empty() {
            return Err(wrong("the path is missing".to_owned()));
        }
        check_name("disk", &name).map_err(wrong)?;
        Ok(Self { name, path })
    }

    /// The address of an export on an NBD server, if that is where the disk is.
    pub fn address(&self) -> Option<&str> {
        self.path.to_str().filter(|text| Address::begins(text.as_bytes()))
    }

    /// Parses all of a VM's disks.
    ///
    /// # Errors
    /// [`SourceError::Argument`] also when two have the same name, or there are none or too many.
    pub fn parse_all(arguments: &[OsString]) -> Result<Vec<Self>, SourceError> {
        if arguments.is_empty() || arguments.len() > DISKS_PER_BACKUP_MAX {
            let count = arguments.len();
            return Err(SourceError::Argument(format!(
                "{count} disks were given; a VM has 1 to {DISKS_PER_BACKUP_MAX}"
            )));
        }
        let disks = arguments.iter().map(|argument| Self::parse(argument)).collect::<Result<Vec<_>, _>>()?;
        let mut seen: BTreeMap<&str, &Path> = BTreeMap::new();
        for disk in &disks {
            if let Some(other) = seen.insert(&disk.name, &disk.path) {
                return Err(SourceError::Argument(format!(
                    "{} and {} would both be disk {:?}; give them different names with NAME=PATH",
                    other.display(),
                    disk.path.display(),
                    disk.name
                )));
            }
        }
        Ok(disks)
    }
}

fn name_of(path: &Path) -> Option<String> {
    path.file_stem().and_then(OsStr::to_str).map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<(String, String)> {
        let disk = DiskArgument::parse(OsStr::new(text)).ok()?;
        Some((disk.name, disk.path.to_str().unwrap().to_owned()))
    }

    #[test]
    fn names_come_before_the_sign_or_from_the_file() {
        for (text, name, path) in [
            ("/vm/web.raw", "web", "/vm/web.raw"),
            ("root=/dev/vg/web", "root", "/dev/vg/web"),
            ("/dev/sda", "sda", "/dev/sda"),
            ("./a=b.raw", "a=b", "./a=b.raw"),
            ("a=b=c", "a", "b=c"),
            ("web.day1.raw", "web.day1", "web.day1.raw"),
        ] {
            assert_eq!(parse(text), Some((name.to_owned(), path.to_owned())), "{text}");
        }
        let address = DiskArgument::parse(OsStr::new("root=nbd+unix:///e?socket=/run/s")).unwrap();
        assert_eq!((address.name.as_str(), address.address()), ("root", Some("nbd+unix:///e?socket=/run/s")));
        assert_eq!(DiskArgument::parse(OsStr::new("./nbd://x")).unwrap().address(), None);
        for bad in
            ["nbd://host/disk", "nbd+unix:///e?socket=/run/s", "", "=x", "name=", "/", "bad\n=x", " x=y"]
        {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn two_disks_of_one_name_are_refused() {
        let all =
            |texts: &[&str]| DiskArgument::parse_all(&texts.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(all(&["a/root.raw", "b/data.raw"]).unwrap().len(), 2);
        let error = all(&["a/root.raw", "b/root.img"]).unwrap_err().to_string();
        assert!(error.contains("a/root.raw") && error.contains("b/root.img"), "{error}");
        assert!(all(&[]).is_err());
    }
}
