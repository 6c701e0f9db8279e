//! Settings that a server made of a bucket needs, so that it can read from there.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use holdfast_proto::details::shell_word;
use serde_json::Value;

use crate::config::{Origin, Resolved, Settings};

/// The keys that say where the bucket is and how it is reached. None holds a secret: credentials are in a file, or come
/// from the environment.
const KEYS: [&str; 7] =
    ["s3_ca", "s3_credentials", "s3_endpoint", "s3_path_style", "s3_plain", "s3_profile", "s3_region"];

/// Settings that the server needs: what to call each, and its value as a configuration file says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    pub settings: Vec<(&'static str, Value)>,
    /// The configuration file that has them all.
    pub file: Option<PathBuf>,
}

impl Needed {
    /// Settings that a recovery from `bucket` was told, put into `file` as far as it does not say it. (S13) `is_plain`: the
    /// repository is not encrypted, which the server has to be told as well.
    pub fn keep(resolved: &Resolved, bucket: &str, is_plain: bool, file: Option<&Path>) -> Self {
        let mut settings = vec![("s3", Value::from(bucket))];
        for key in KEYS {
            let told =
                resolved.entries().find(|(name, _, origin)| *name == key && **origin != Origin::Default);
            let value = told.map(|(_, value, _)| value.clone());
            let value = if key == "s3_plain" && is_plain { Some(Value::from(true)) } else { value };
            settings.extend(value.map(|value| (key, value)));
        }
        let file = file.filter(|file| {
            append(&settings, file)
                .inspect_err(|error| {
                    tracing::warn!(file = %file.display(), %error, "cannot put the settings of the bucket there");
                })
                .is_ok()
        });
        Self { settings, file: file.map(Path::to_path_buf) }
    }

    /// The settings as lines of a configuration file.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.settings.iter().map(|(key, value)| format!("{key} = {value}"))
    }

    /// The arguments with which the server knows them.
    pub fn arguments(&self) -> String {
        if let Some(file) = &self.file {
            return format!(" --config {}", shell_word(&file.display().to_string()));
        }
        let argument = |(key, value): &(&str, Value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!(" --{}={}", key.replace('_', "-"), shell_word(&text))
        };
        self.settings.iter().map(argument).collect()
    }
}

/// Appends what the file does not say, whatever flags and the environment say. What it says otherwise is left to the
/// administrator.
fn append(settings: &[(&str, Value)], file: &Path) -> io::Result<()> {
    let before = fs::read_to_string(file)?;
    let said: toml::Table = toml::from_str(&before).map_err(io::Error::other)?;
    let mut lines = String::new();
    for (key, value) in settings {
        match said.get(*key) {
            Some(said) if serde_json::to_value(said).ok().as_ref() == Some(value) => {}
            Some(said) => return Err(io::Error::other(format!("it says {key} = {said}"))),
            None => lines.push_str(&format!("{key} = {value}\n")),
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    let lines = format!("\n# The bucket that this server was made of by 'holdfast-server recover':\n{lines}");
    toml::from_str::<Settings>(&format!("{before}{lines}")).map_err(io::Error::other)?;
    // In place: the file keeps its owner.
    let mut file = OpenOptions::new().append(true).open(file)?;
    file.write_all(lines.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Given, resolve};

    fn told(file: Option<&Path>) -> Resolved {
        let env = |name: &str| match name {
            "HOLDFAST_S3_ENDPOINT" => Some("https://store.example:9000".into()),
            "HOLDFAST_S3_PATH_STYLE" => Some("true".into()),
            "HOLDFAST_S3_PROFILE" => Some("it's mine".into()),
            _ => None,
        };
        resolve(&Given::default(), file, &env).unwrap()
    }

    #[test]
    fn what_was_needed_is_in_the_file_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server.toml");
        fs::write(&file, "lease_secs = 60\ns3_region = \"eu\"").unwrap();
        let needed = Needed::keep(&told(Some(&file)), "s3://bucket/x", true, Some(&file));
        assert_eq!(needed.file.as_deref(), Some(&*file));
        assert!(needed.arguments().starts_with(" --config "));
        // The file alone says it all; nothing is said twice.
        let alone = resolve(&Given::default(), Some(&file), &|_| None).unwrap().settings;
        assert_eq!((alone.s3.as_deref(), alone.s3_region.as_deref()), (Some("s3://bucket/x"), Some("eu")));
        assert_eq!(alone.s3_endpoint.as_deref(), Some("https://store.example:9000"));
        assert_eq!(alone.s3_profile.as_deref(), Some("it's mine"));
        assert!(alone.s3_path_style && alone.s3_plain && alone.lease_secs == 60);
        let before = fs::read_to_string(&file).unwrap();
        let again = Needed::keep(&told(Some(&file)), "s3://bucket/x", true, Some(&file));
        assert!(again.file.is_some());
        assert_eq!(fs::read_to_string(&file).unwrap(), before);
    }

    #[test]
    fn what_a_file_says_otherwise_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server.toml");
        fs::write(&file, "s3 = \"s3://other/x\"\n").unwrap();
        let needed = Needed::keep(&told(Some(&file)), "s3://bucket/x", false, Some(&file));
        assert_eq!(needed.file, None);
        assert_eq!(fs::read_to_string(&file).unwrap(), "s3 = \"s3://other/x\"\n");
    }

    #[test]
    fn without_a_file_the_command_that_starts_the_server_says_it() {
        let needed = Needed::keep(&told(None), "s3://bucket/x", false, None);
        assert_eq!(
            needed.arguments(),
            " --s3=s3://bucket/x --s3-endpoint=https://store.example:9000 --s3-path-style=true --s3-profile='it'\\''s mine'"
        );
        let lines: Vec<String> = needed.lines().collect();
        assert_eq!(lines[..2], ["s3 = \"s3://bucket/x\"", "s3_endpoint = \"https://store.example:9000\""]);
    }
}
