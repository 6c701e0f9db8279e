//! Where settings come from: flags, then the environment, then the profile that `holdfast login` wrote.
//!
//! A token can be given itself or as a file, and trust as a fingerprint or a CA: each is *one* setting in
//! two forms, so a form given in a stronger layer hides both forms of a weaker one.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Settings, Token, Trust};
use crate::error::ClientError;

/// A profile or token file longer than this is none (64 KiB).
const FILE_MAX_BYTES: u64 = 64 << 10;

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
}

impl Layer {
    /// From environment variables, by the given look-up. Empty values count as absent.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
        Self {
            server: get("HOLDFAST_SERVER"),
            token: get("HOLDFAST_TOKEN"),
            token_file: get("HOLDFAST_TOKEN_FILE").map(PathBuf::from),
            fingerprint: get("HOLDFAST_FINGERPRINT"),
            ca: get("HOLDFAST_CA").map(PathBuf::from),
            namespace: get("HOLDFAST_NAMESPACE"),
        }
    }

    /// Reads a profile file; a missing one is an empty layer.
    ///
    /// # Errors
    /// [`ClientError::File`] or [`ClientError::Profile`], naming the file.
    pub fn load(path: &Path) -> Result<Self, ClientError> {
        let Some(text) = read_small(path)? else { return Ok(Self::default()) };
        toml::from_str(&text).map_err(|error| ClientError::Profile {
            path: path.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })
    }

    /// Writes a profile file that only its owner may read: a temporary file, then a rename, so that a crash
    /// leaves the old profile or the new one.
    ///
    /// # Errors
    /// [`ClientError::File`], naming the file.
    pub fn save(&self, path: &Path) -> Result<(), ClientError> {
        let fail = |source| ClientError::File { what: "writing profile", path: path.to_owned(), source };
        let text = toml::to_string(self)
            .map_err(|error| ClientError::Profile { path: path.to_owned(), message: error.to_string() })?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(fail)?;
        }
        let partial = path.with_extension(format!("toml.{}", std::process::id()));
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
}

/// The profile's place: `$XDG_CONFIG_HOME/holdfast/profile.toml`, else below `~/.config`.
pub fn default_path(lookup: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(config.join("holdfast").join("profile.toml"))
}

/// Settings put together, strongest layer first.
#[derive(Debug, Clone, Default)]
pub struct Layers(pub Vec<Layer>);

impl Layers {
    /// The server's address; 127.0.0.1:7440 when none is given.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for an address that makes no sense.
    pub fn server(&self) -> Result<super::ServerAddress, ClientError> {
        let text = self.0.iter().find_map(|layer| layer.server.as_deref());
        text.map_or_else(|| Ok(super::ServerAddress::default()), str::parse)
            .map_err(|error| ClientError::Usage(error.to_string()))
    }

    /// How to judge the server's certificate, if that is given.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for a fingerprint that is none, or both forms in one layer.
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
                let text = read_small(path)?.ok_or_else(|| ClientError::File {
                    what: "reading token file",
                    path: path.to_owned(),
                    source: std::io::ErrorKind::NotFound.into(),
                })?;
                Token::new(&text).map(Some)
            }
            Some((None, None)) | None => Ok(None),
        }
    }

    /// The namespace that was named. Empty when none was: the server then takes the token's only one (or
    /// the default one), and shows lists and reports of all the token may see.
    pub fn namespace(&self) -> String {
        self.0.iter().find_map(|layer| layer.namespace.clone()).unwrap_or_default()
    }

    /// Everything needed to connect.
    ///
    /// # Errors
    /// As the single settings, and [`ClientError::Usage`] when trust or token are given nowhere.
    pub fn settings(&self) -> Result<Settings, ClientError> {
        let trust = self.trust()?.ok_or_else(|| {
            ClientError::Usage(
                "nothing says which certificate to trust: run 'holdfast login', or give --fingerprint (the \
                 server prints it at its start) or --ca"
                    .to_owned(),
            )
        })?;
        let token = self.token()?.ok_or_else(|| {
            ClientError::Usage(
                "no token: run 'holdfast login', or give --token-file or HOLDFAST_TOKEN; the server's first \
                 start writes one to admin.token in its data folder"
                    .to_owned(),
            )
        })?;
        Ok(Settings::new(self.server()?, trust, token))
    }
}

/// The text of a small file; `None` when it does not exist.
fn read_small(path: &Path) -> Result<Option<String>, ClientError> {
    use std::io::Read as _;
    let fail = |source| ClientError::File { what: "reading", path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    let mut text = String::new();
    let read = file.take(FILE_MAX_BYTES + 1).read_to_string(&mut text).map_err(fail)?;
    if read as u64 > FILE_MAX_BYTES {
        return Err(fail(std::io::Error::other(format!("longer than {FILE_MAX_BYTES} bytes"))));
    }
    Ok(Some(text))
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
        assert_eq!(all.token().unwrap().unwrap().reveal(), "from-profile", "an empty variable is none");
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
    fn a_profile_round_trips_and_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = default_path(|name| {
            (name == "XDG_CONFIG_HOME").then(|| folder.path().to_str().unwrap().to_owned())
        })
        .unwrap();
        assert_eq!(Layer::load(&path).unwrap(), Layer::default());
        let profile = layer("h:1", "t");
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
