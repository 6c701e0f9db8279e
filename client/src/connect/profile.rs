//! One place that settings come from: the environment, or the profile file that `holdfast login` and `holdfast agent join`
//! write.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::ClientError;

/// A profile or token file is never longer than this (64 KiB).
pub(crate) const FILE_MAX_BYTES: u64 = 64 << 10;

/// One source of settings. The profile file has exactly these keys; others are refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// `host:port` or `https://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// SHA-256 of the server's certificate, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// PEM file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Key file of a namespace that is end-to-end encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_key: Option<PathBuf>,
    /// Command that prints the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_key_command: Option<String>,
    /// File with the passphrase of a key that is wrapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_key_passphrase_file: Option<PathBuf>,
    /// The passphrase itself; never in a profile.
    #[serde(skip)]
    pub namespace_key_passphrase: Option<String>,
}

impl Layer {
    /// Reads settings from environment variables, by the given look-up. Empty values count as absent.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
        Self {
            server: get("HOLDFAST_SERVER"),
            token: get("HOLDFAST_TOKEN"),
            token_file: get("HOLDFAST_TOKEN_FILE").map(PathBuf::from),
            fingerprint: get("HOLDFAST_FINGERPRINT"),
            ca: get("HOLDFAST_CA").map(PathBuf::from),
            namespace: get("HOLDFAST_NAMESPACE"),
            namespace_key: get("HOLDFAST_NAMESPACE_KEY").map(PathBuf::from),
            namespace_key_command: get("HOLDFAST_NAMESPACE_KEY_COMMAND"),
            namespace_key_passphrase_file: get("HOLDFAST_NAMESPACE_KEY_PASSPHRASE_FILE").map(PathBuf::from),
            namespace_key_passphrase: get("HOLDFAST_NAMESPACE_KEY_PASSPHRASE"),
        }
    }

    /// Reads a profile file; a missing one is an empty layer.
    ///
    /// # Errors
    /// [`ClientError::File`] or [`ClientError::Profile`], naming the file.
    pub fn load(path: &Path) -> Result<Self, ClientError> {
        let Some(text) = read_small(path, FILE_MAX_BYTES)? else { return Ok(Self::default()) };
        toml::from_str(&text).map_err(|error| ClientError::Profile {
            path: path.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })
    }

    /// Writes a profile file that only its owner may read.
    ///
    /// # Errors
    /// [`ClientError::File`], naming the file.
    pub fn save(&self, path: &Path) -> Result<(), ClientError> {
        let text = toml::to_string(self)
            .map_err(|error| ClientError::Profile { path: path.to_owned(), message: error.to_string() })?;
        write_private("writing profile", path, &text)
    }
}

/// Writes a small file that only its owner may read, with the folders above it: a temporary file, then a rename, so that a
/// crash leaves the old file or the new one.
pub(crate) fn write_private(what: &'static str, path: &Path, text: &str) -> Result<(), ClientError> {
    let fail = |source| ClientError::File { what, path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(fail)?;
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}", std::process::id()));
    let partial = PathBuf::from(partial);
    let written = (|| {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&partial, path)
    })();
    written.map_err(|source| {
        // Best effort: the error that matters is the first one.
        drop(std::fs::remove_file(&partial));
        fail(source)
    })
}

/// The profile of a whole machine, which `holdfast agent join` writes as root.
pub const OF_MACHINE: &str = "/etc/holdfast/profile.toml";

/// Path of the profile: of root the machine's if there is one, else the user's.
pub fn default_path(lookup: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() && Path::new(OF_MACHINE).exists() {
        return Some(PathBuf::from(OF_MACHINE));
    }
    of_user(lookup)
}

/// `$XDG_CONFIG_HOME/holdfast/profile.toml`, or the same below `~/.config`.
fn of_user(lookup: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(config.join("holdfast").join("profile.toml"))
}

/// The text of a file of at most so many bytes; `None` when it does not exist.
pub(crate) fn read_small(path: &Path, max_bytes: u64) -> Result<Option<String>, ClientError> {
    use std::io::Read as _;
    let fail = |source| ClientError::File { what: "reading", path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    let mut text = String::new();
    let read = file.take(max_bytes + 1).read_to_string(&mut text).map_err(fail)?;
    if read as u64 > max_bytes {
        return Err(fail(std::io::Error::other(format!("it is longer than {max_bytes} bytes"))));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_round_trips_and_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path =
            of_user(|name| (name == "XDG_CONFIG_HOME").then(|| folder.path().to_str().unwrap().to_owned()))
                .unwrap();
        assert_eq!(Layer::load(&path).unwrap(), Layer::default());
        let profile = Layer { server: Some("h:1".into()), token: Some("t".into()), ..Layer::default() };
        profile.save(&path).unwrap();
        assert_eq!(Layer::load(&path).unwrap(), profile);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn unknown_keys_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.toml");
        std::fs::write(&path, "server = 'a'\nfingreprint = 'x'\n").unwrap();
        let error = Layer::load(&path).unwrap_err().to_string();
        assert!(error.contains("fingreprint") && error.contains("profile.toml"), "{error}");
    }
}
