//! Settings from several places: flags, then the environment, then the profile that `holdfast login` wrote.
//!
//! A token can be given directly or as a file, and trust as a fingerprint or a CA: each is *one* setting in
//! two forms, so either form in a stronger layer hides both forms in a weaker one.

use std::path::Path;

use holdfast_keys::SecretBytes;
use zeroize::Zeroizing;

use super::profile::{FILE_MAX_BYTES, Layer, read_small};
use super::{Settings, Token, Trust};
use crate::end_to_end::KeySource;
use crate::error::ClientError;

/// Settings put together, strongest layer first.
#[derive(Debug, Clone, Default)]
pub struct Layers(pub Vec<Layer>);

impl Layers {
    /// The server's address; 127.0.0.1:7440 when none is given.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for a malformed address.
    pub fn server(&self) -> Result<super::ServerAddress, ClientError> {
        let text = self.0.iter().find_map(|layer| layer.server.as_deref());
        text.map_or_else(|| Ok(super::ServerAddress::default()), str::parse)
            .map_err(|error| ClientError::Usage(error.to_string()))
    }

    /// Returns how to judge the server's certificate, if it is given.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for a malformed fingerprint, or both forms in one layer.
    pub fn trust(&self) -> Result<Option<Trust>, ClientError> {
        let layer = self.0.iter().find(|layer| layer.fingerprint.is_some() || layer.ca.is_some());
        match layer.map(|layer| (layer.fingerprint.as_deref(), layer.ca.as_deref())) {
            Some((Some(_), Some(_))) => {
                Err(ClientError::Usage("give either a fingerprint or a CA, not both".to_owned()))
            }
            Some((Some(text), None)) => text
                .parse()
                .map(|pin| Some(Trust::Pinned(pin)))
                .map_err(|error: super::NotACertFingerprint| ClientError::Usage(error.to_string())),
            Some((None, Some(path))) => Ok(Some(Trust::Ca(path.to_owned()))),
            Some((None, None)) | None => Ok(None),
        }
    }

    /// The token, if one is given.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for both forms in one layer or a malformed token; [`ClientError::File`] for a
    /// token file that cannot be read.
    pub fn token(&self) -> Result<Option<Token>, ClientError> {
        let layer = self.0.iter().find(|layer| layer.token.is_some() || layer.token_file.is_some());
        match layer.map(|layer| (layer.token.as_deref(), layer.token_file.as_deref())) {
            Some((Some(_), Some(_))) => {
                Err(ClientError::Usage("give either a token or a token file, not both".to_owned()))
            }
            Some((Some(text), None)) => Token::new(text).map(Some),
            Some((None, Some(path))) => {
                let text = read_small(path, FILE_MAX_BYTES)?.ok_or_else(|| ClientError::File {
                    what: "reading token file",
                    path: path.to_owned(),
                    source: std::io::Error::new(std::io::ErrorKind::NotFound, "there is no such file"),
                })?;
                Token::new(&text).map(Some)
            }
            Some((None, None)) | None => Ok(None),
        }
    }

    /// The namespace that was given; empty if none was. The server then takes the token's only one (or the
    /// default one), and lists and reports cover everything the token may see.
    pub fn namespace(&self) -> String {
        self.0.iter().find_map(|layer| layer.namespace.clone()).unwrap_or_default()
    }

    /// Returns the source of the namespace's key, if it has one: where it is end-to-end encrypted.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for both forms in one layer.
    pub fn namespace_key(&self) -> Result<Option<KeySource>, ClientError> {
        let given = |layer: &&Layer| layer.namespace_key.is_some() || layer.namespace_key_command.is_some();
        let layer = self.0.iter().find(given);
        match layer.map(|layer| (layer.namespace_key.as_ref(), layer.namespace_key_command.as_ref())) {
            Some((Some(_), Some(_))) => Err(ClientError::Usage(
                "give either a namespace's key file or a command that prints it, not both".to_owned(),
            )),
            Some((Some(path), None)) => Ok(Some(KeySource::File(path.clone()))),
            Some((None, Some(command))) => Ok(Some(KeySource::Command(command.clone()))),
            Some((None, None)) | None => Ok(None),
        }
    }

    /// The passphrase of a namespace's key that is wrapped, if it is given.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for both forms in one layer; [`ClientError::File`] for a file that cannot be read.
    pub fn namespace_key_passphrase(&self) -> Result<Option<SecretBytes>, ClientError> {
        let given = |layer: &&Layer| {
            layer.namespace_key_passphrase.is_some() || layer.namespace_key_passphrase_file.is_some()
        };
        let Some(layer) = self.0.iter().find(given) else { return Ok(None) };
        match (&layer.namespace_key_passphrase, &layer.namespace_key_passphrase_file) {
            (Some(_), Some(_)) => Err(ClientError::Usage(
                "give either the passphrase of a namespace's key or a file with it, not both".to_owned(),
            )),
            (Some(text), None) => Ok(Some(SecretBytes::new(text.clone().into_bytes()))),
            (None, Some(path)) => read_passphrase(path).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Returns everything needed to connect.
    ///
    /// # Errors
    /// Those of the single settings, and [`ClientError::Usage`] when trust or token are missing.
    pub fn settings(&self) -> Result<Settings, ClientError> {
        let trust = self.trust()?.ok_or_else(|| {
            ClientError::Usage(
                "no certificate is trusted yet: run 'holdfast login', or give --fingerprint (the server prints it \
                 when it starts) or --ca"
                    .to_owned(),
            )
        })?;
        let token = self.token()?.ok_or_else(|| {
            ClientError::Usage(
                "no token: run 'holdfast login', give --token-file or set HOLDFAST_TOKEN; when it first starts, the \
                 server writes one to admin.token in its data folder"
                    .to_owned(),
            )
        })?;
        Ok(Settings::new(self.server()?, trust, token))
    }
}

/// The first line of a file: a passphrase.
///
/// # Errors
/// [`ClientError::File`].
pub fn read_passphrase(path: &Path) -> Result<SecretBytes, ClientError> {
    let text = read_small(path, FILE_MAX_BYTES)?.map(Zeroizing::new).ok_or_else(|| ClientError::File {
        what: "reading passphrase file",
        path: path.to_owned(),
        source: std::io::Error::new(std::io::ErrorKind::NotFound, "there is no such file"),
    })?;
    Ok(SecretBytes::new(text.lines().next().unwrap_or_default().as_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::CertFingerprint;

    fn layer(server: &str, token: &str) -> Layer {
        Layer { server: Some(server.to_owned()), token: Some(token.to_owned()), ..Layer::default() }
    }

    #[test]
    fn flags_beat_environment_beats_profile() {
        let env = Layer::from_env(|name| match name {
            "HOLDFAST_SERVER" => Some("env:1".to_owned()),
            "HOLDFAST_TOKEN" => Some(String::new()),
            _ => None,
        });
        let profile = Layer { namespace: Some("tenant".to_owned()), ..layer("profile:2", "from-profile") };
        let flags = Layer { server: Some("flag:3".to_owned()), ..Layer::default() };
        let all = Layers(vec![flags, env.clone(), profile.clone()]);
        assert_eq!(all.server().unwrap().to_string(), "flag:3");
        assert_eq!(
            all.token().unwrap().unwrap().reveal(),
            "from-profile",
            "an empty variable counts as absent"
        );
        assert_eq!(all.namespace(), "tenant");
        assert_eq!(Layers(vec![env, profile]).server().unwrap().to_string(), "env:1");
        assert_eq!(Layers::default().server().unwrap().to_string(), "127.0.0.1:7440");
        assert_eq!(Layers::default().namespace(), "", "the server knows which one the token is for");
    }

    #[test]
    fn a_setting_in_two_forms_is_taken_from_one_layer() {
        let pin = CertFingerprint::of(b"x");
        let profile = Layer { fingerprint: Some(pin.to_string()), ..layer("a", "weak") };
        let flags = Layer { ca: Some("ca.pem".into()), ..Layer::default() };
        assert_eq!(Layers(vec![profile.clone()]).trust().unwrap(), Some(Trust::Pinned(pin)));
        let all = Layers(vec![flags, profile.clone()]);
        assert_eq!(all.trust().unwrap(), Some(Trust::Ca("ca.pem".into())));
        let both = Layer { ca: Some("ca.pem".into()), ..profile };
        assert_eq!(Layers(vec![both]).trust().unwrap_err().exit_code(), 2);
    }

    #[test]
    fn a_token_file_beats_a_weaker_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "from-file\n").unwrap();
        let flags = Layer { token_file: Some(path.clone()), ..Layer::default() };
        let all = Layers(vec![flags.clone(), layer("a", "weak")]);
        assert_eq!(all.token().unwrap().unwrap().reveal(), "from-file");
        std::fs::remove_file(path).unwrap();
        let error = Layers(vec![flags]).token().unwrap_err();
        assert!(error.to_string().contains("token"), "{error}");
    }

    #[test]
    fn a_namespaces_key_is_taken_from_one_layer() {
        let flags = Layer { namespace_key_command: Some("age -d k".into()), ..Layer::default() };
        let profile = Layer { namespace_key: Some("vault.key".into()), ..layer("a", "t") };
        let all = Layers(vec![flags.clone(), profile.clone()]);
        assert_eq!(all.namespace_key().unwrap(), Some(KeySource::Command("age -d k".to_owned())));
        let one = Layers(vec![Layer::default(), profile.clone()]);
        assert_eq!(one.namespace_key().unwrap(), Some(KeySource::File("vault.key".into())));
        assert_eq!(Layers::default().namespace_key().unwrap(), None);
        let both = Layer { namespace_key: profile.namespace_key, ..flags };
        assert_eq!(Layers(vec![both]).namespace_key().unwrap_err().exit_code(), 2);
    }

    #[test]
    fn a_passphrase_is_taken_from_one_layer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("phrase");
        std::fs::write(&path, "of a file\nand more\n").unwrap();
        let file = Layer { namespace_key_passphrase_file: Some(path), ..Layer::default() };
        let env = Layer { namespace_key_passphrase: Some("of the environment".into()), ..Layer::default() };
        let phrase = |layers: &[&Layer]| {
            let layers = Layers(layers.iter().map(|layer| (*layer).clone()).collect());
            layers.namespace_key_passphrase().map(|found| found.map(|found| found.expose().to_vec()))
        };
        assert_eq!(phrase(&[&file, &env]).unwrap(), Some(b"of a file".to_vec()));
        assert_eq!(phrase(&[&env, &file]).unwrap(), Some(b"of the environment".to_vec()));
        assert_eq!(phrase(&[&Layer::default()]).unwrap(), None);
        let both = Layer { namespace_key_passphrase: env.namespace_key_passphrase, ..file };
        assert_eq!(phrase(&[&both]).unwrap_err().exit_code(), 2);
        assert!(!toml::to_string(&both).unwrap().contains("of the environment"), "it is never saved");
    }

    #[test]
    fn missing_trust_and_token_say_what_to_do() {
        for layers in [Layers(vec![layer("a", "t")]), Layers::default()] {
            let error = layers.settings().unwrap_err();
            assert!(error.to_string().contains("holdfast login"), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
        assert_eq!(format!("{:?}", Token::new("secret").unwrap()), "Token(…)");
        assert!(Token::new("two words").is_err());
    }
}
