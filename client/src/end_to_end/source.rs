//! Where a namespace's key comes from: a key file, or a command that prints what is in one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_keys::source::{command, key_file};
use holdfast_keys::{Secret, SystemRandom};

use super::{Cipher, NamespaceKey};
use crate::error::ClientError;

/// Where the key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file that only its owner can read.
    File(PathBuf),
    /// A command of the shell, whose output is the line of such a file.
    Command(String),
}

impl KeySource {
    /// Fetches the key.
    ///
    /// # Errors
    /// [`ClientError::Key`]. Never has anything secret.
    pub fn cipher(&self) -> Result<Cipher, ClientError> {
        let secret = match self {
            Self::File(path) => key_file::read(path).map_err(|error| failed(&error))?,
            Self::Command(text) => from_command(text)?,
        };
        Ok(Cipher::Sealed(Arc::new(NamespaceKey::new(&secret))))
    }
}

fn from_command(text: &str) -> Result<Secret, ClientError> {
    let words = ["sh", "-c", text].map(str::to_owned);
    let line = command::run(&words, command::TIME_LIMIT).map_err(|error| failed(&error))?;
    key_file::parse(line.expose()).ok_or_else(|| {
        ClientError::Key(
            "what the command of --namespace-key-command printed is not the line of a key file, as 'holdfast \
             namespace-key new' makes one"
                .to_owned(),
        )
    })
}

/// Makes a key file with a new key.
///
/// # Errors
/// [`ClientError::Key`]; a file that is there already is not touched.
pub fn create_key_file(path: &Path) -> Result<NamespaceKey, ClientError> {
    let secret = key_file::create(path, &SystemRandom).map_err(|error| failed(&error))?;
    Ok(NamespaceKey::new(&secret))
}

fn failed(error: &dyn std::error::Error) -> ClientError {
    ClientError::Key(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_from_its_file_or_a_command() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vault.key");
        let made = create_key_file(&path).unwrap();
        assert_eq!(KeySource::File(path.clone()).cipher().unwrap().key_id(), Some(made.id()));
        let cat = KeySource::Command(format!("cat '{}'", path.display()));
        assert_eq!(cat.cipher().unwrap().key_id(), Some(made.id()));
        let again = create_key_file(&path).unwrap_err();
        assert!(again.to_string().contains("exists already"), "{again}");
        assert_eq!(KeySource::File(path).cipher().unwrap().key_id(), Some(made.id()), "it is as it was");
        for (source, word) in [
            (KeySource::File(folder.path().join("none")), "there is no key file"),
            (KeySource::Command("echo secret-words".to_owned()), "is not the line of a key file"),
            (KeySource::Command("echo no key for you >&2; exit 3".to_owned()), "no key for you"),
        ] {
            let error = source.cipher().unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, ClientError::Key(_)) && text.contains(word), "{text}");
            assert!(!text.contains("secret-words"), "{text}");
        }
    }
}
