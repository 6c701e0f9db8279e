//! Where a namespace's key comes from: a key file, which a passphrase may have wrapped, or a command that prints what is in
//! one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_keys::slots::KdfCost;
use holdfast_keys::source::wrapped::WrappedKey;
use holdfast_keys::source::{command, key_file};
use holdfast_keys::{Secret, SecretBytes, SystemRandom};

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

/// Says the passphrase of a key that is wrapped by one; asked only then.
pub type AskPassphrase<'a> = &'a dyn Fn() -> Result<SecretBytes, ClientError>;

impl KeySource {
    /// Fetches the key.
    ///
    /// # Errors
    /// [`ClientError::Key`]. Never has anything secret.
    pub fn cipher(&self, ask: AskPassphrase<'_>) -> Result<Cipher, ClientError> {
        Ok(Cipher::Sealed(Arc::new(NamespaceKey::new(&self.secret(ask)?))))
    }

    fn secret(&self, ask: AskPassphrase<'_>) -> Result<Secret, ClientError> {
        let (wrapped, place) = match self {
            Self::File(path) => match WrappedKey::read(path).map_err(|error| failed(&error))? {
                Some(wrapped) => (wrapped, path.display().to_string()),
                None => return key_file::read(path).map_err(|error| failed(&error)),
            },
            Self::Command(text) => match from_command(text)? {
                Found::Plain(secret) => return Ok(secret),
                Found::Wrapped(wrapped) => (wrapped, "what the command printed".to_owned()),
            },
        };
        let opened = wrapped.open(&ask()?);
        opened.map_err(|error| ClientError::Key(format!("the namespace's key ({place}): {error}")))
    }
}

enum Found {
    Plain(Secret),
    Wrapped(WrappedKey),
}

fn from_command(text: &str) -> Result<Found, ClientError> {
    let line = command::run_line(text, command::TIME_LIMIT).map_err(|error| failed(&error))?;
    if let Some(wrapped) = WrappedKey::parse(line.expose()).map_err(|error| failed(&error))? {
        return Ok(Found::Wrapped(wrapped));
    }
    key_file::parse(line.expose()).map(Found::Plain).ok_or_else(|| {
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

/// Makes a key file that `passphrase` opens: with the key of `source`, which `ask` may be asked for, or with a new one.
///
/// # Errors
/// [`ClientError::Key`]; a file that is there already is not touched.
pub fn create_wrapped_key_file(
    path: &Path,
    source: Option<(&KeySource, AskPassphrase<'_>)>,
    passphrase: &SecretBytes,
) -> Result<NamespaceKey, ClientError> {
    let secret = match source {
        Some((source, ask)) => source.secret(ask)?,
        None => Secret::random(&SystemRandom)
            .map_err(|_| ClientError::Internal("the system has no random numbers"))?,
    };
    WrappedKey::wrap(&secret, passphrase, KdfCost::DEFAULT, &SystemRandom)
        .and_then(|wrapped| wrapped.create(path, &SystemRandom))
        .map_err(|error| failed(&error))?;
    Ok(NamespaceKey::new(&secret))
}

fn failed(error: &dyn std::error::Error) -> ClientError {
    ClientError::Key(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_passphrase() -> Result<SecretBytes, ClientError> {
        panic!("no key is wrapped")
    }

    #[test]
    fn a_key_comes_from_its_file_or_a_command() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vault.key");
        let made = create_key_file(&path).unwrap();
        assert_eq!(KeySource::File(path.clone()).cipher(&no_passphrase).unwrap().key_id(), Some(made.id()));
        let cat = KeySource::Command(format!("cat '{}'", path.display()));
        assert_eq!(cat.cipher(&no_passphrase).unwrap().key_id(), Some(made.id()));
        let again = create_key_file(&path).unwrap_err();
        assert!(again.to_string().contains("exists already"), "{again}");
        assert_eq!(
            KeySource::File(path).cipher(&no_passphrase).unwrap().key_id(),
            Some(made.id()),
            "it is as it was"
        );
        for (source, word) in [
            (KeySource::File(folder.path().join("none")), "there is no key file"),
            (KeySource::Command("echo secret-words".to_owned()), "is not the line of a key file"),
            (KeySource::Command("echo no key for you >&2; exit 3".to_owned()), "no key for you"),
        ] {
            let error = source.cipher(&no_passphrase).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, ClientError::Key(_)) && text.contains(word), "{text}");
            assert!(!text.contains("secret-words"), "{text}");
        }
    }

    #[test]
    fn a_wrapped_key_is_opened_by_its_passphrase() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, wrapped) = (folder.path().join("plain.key"), folder.path().join("wrapped.key"));
        let made = create_key_file(&plain).unwrap();
        let phrase = || Ok(SecretBytes::new(b"a long passphrase".to_vec()));
        let from = KeySource::File(plain);
        let same =
            create_wrapped_key_file(&wrapped, Some((&from, &no_passphrase)), &phrase().unwrap()).unwrap();
        assert_eq!(same.id(), made.id());
        let cat = KeySource::Command(format!("cat '{}'", wrapped.display()));
        for source in [KeySource::File(wrapped.clone()), cat] {
            assert_eq!(source.cipher(&phrase).unwrap().key_id(), Some(made.id()));
            let wrong = source.cipher(&|| Ok(SecretBytes::new(b"another passphrase".to_vec()))).unwrap_err();
            assert!(wrong.to_string().contains("does not open"), "{wrong}");
        }
        let again = create_wrapped_key_file(&wrapped, None, &phrase().unwrap()).unwrap_err();
        assert!(again.to_string().contains("exists already"), "{again}");
        let fresh = folder.path().join("fresh.key");
        let fresh = create_wrapped_key_file(&fresh, None, &phrase().unwrap()).unwrap();
        assert_ne!(fresh.id(), made.id());
    }
}
