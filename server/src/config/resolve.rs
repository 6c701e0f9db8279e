//! Merges the four sources and remembers where each value came from.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Args as _, Command, FromArgMatches};
use holdfast_proto::reread::REREAD_DAYS_MAX;
use serde::Serialize;
use serde_json::{Map, Value};
use tracing_subscriber::EnvFilter;

use super::{ENV_PREFIX, Settings};

/// Largest configuration file: a typo in a path must not read a disk image into memory.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// Longest pass of the scrub: what is looked at less often than once in ten years is not looked at.
const SCRUB_DAYS_MAX: u32 = 3650;

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Flag,
    /// The variable's name.
    Env(String),
    File(PathBuf),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("command line"),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Why the settings are not valid. Each names the key and the source.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the configuration file {} is larger than {FILE_MAX_BYTES} bytes; is it the right file?", path.display())]
    TooLarge { path: PathBuf },
    #[error("configuration file {}: {message}", path.display())]
    File { path: PathBuf, message: String },
    #[error("environment variable {name}: {message}")]
    Env { name: String, message: String },
    #[error("environment variable {name}: there is no such setting{}; 'holdfast-server config' lists them", hint(.meant.as_ref()))]
    UnknownEnv { name: String, meant: Option<String> },
    #[error("{key} (from {origin}): {message}")]
    Value { key: &'static str, origin: Origin, message: String },
    #[error("the settings cannot be read: {0}")]
    Shape(#[from] serde_json::Error),
}

/// Settings from one source: some keys, each with its value as a configuration file has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given(Map<String, Value>);

impl Given {
    /// This and one more setting, if there is a value.
    ///
    /// # Errors
    /// [`ConfigError::Shape`] when a configuration file cannot have it, such as a path that is not UTF-8.
    pub fn with(mut self, key: &str, value: Option<impl Serialize>) -> Result<Self, ConfigError> {
        if let Some(value) = value {
            self.0.insert(key.to_owned(), serde_json::to_value(value)?);
        }
        Ok(self)
    }
}

impl clap::Args for Given {
    fn augment_args(command: Command) -> Command {
        Settings::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Settings::augment_args_for_update(command)
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let settings = values_of(&Settings::from_arg_matches(matches)?)
            .map_err(|error| clap::Error::raw(clap::error::ErrorKind::ValueValidation, error))?;
        let is_given = |key: &str| matches.value_source(key) == Some(ValueSource::CommandLine);
        Ok(Self(settings.into_iter().filter(|(key, _)| is_given(key)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

/// The settings that have a value.
fn values_of(settings: &Settings) -> Result<Map<String, Value>, serde_json::Error> {
    let values: Map<String, Value> = serde_json::from_value(serde_json::to_value(settings)?)?;
    Ok(values.into_iter().filter(|(_, value)| !value.is_null()).collect())
}

/// The settings in force and where each came from.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub settings: Settings,
    values: BTreeMap<String, (Value, Origin)>,
}

impl Resolved {
    /// Key, value as the configuration file would say it, and origin, by key.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Value, &Origin)> {
        self.values.iter().map(|(key, (value, origin))| (key.as_str(), value, origin))
    }

    fn refuse(&self, key: &'static str, message: impl Into<String>) -> ConfigError {
        let origin = self.values.get(key).map_or(Origin::Default, |(_, origin)| origin.clone());
        ConfigError::Value { key, origin, message: message.into() }
    }
}

/// Merges the defaults, the file at `config` (or at `HOLDFAST_CONFIG`), the environment, read through `env`, and
/// `flags`; each overrides those before it.
///
/// # Errors
/// [`ConfigError`], naming key and source.
pub fn resolve(
    flags: &Given,
    config: Option<&Path>,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Resolved, ConfigError> {
    let mut values = BTreeMap::new();
    let mut merge = |given: Given, origin: &dyn Fn(&str) -> Origin| {
        values.extend(given.0.into_iter().map(|(key, value)| {
            let from = origin(&key);
            (key, (value, from))
        }));
    };
    merge(Given(values_of(&Settings::default())?), &|_| Origin::Default);
    let config =
        config.map(Path::to_path_buf).or_else(|| env(&format!("{ENV_PREFIX}CONFIG")).map(PathBuf::from));
    if let Some(path) = config {
        merge(read_file(&path)?, &|_| Origin::File(path.clone()));
    }
    merge(read_env(env)?, &|key| Origin::Env(env_name(key)));
    merge(flags.clone(), &|_| Origin::Flag);

    let merged: Map<String, Value> =
        values.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect();
    let settings = serde_json::from_value(Value::Object(merged))?;
    let resolved = Resolved { settings, values };
    check(&resolved)?;
    Ok(resolved)
}

fn read_file(path: &Path) -> Result<Given, ConfigError> {
    let read = |source| ConfigError::Read { path: path.to_path_buf(), source };
    if std::fs::metadata(path).map_err(read)?.len() > FILE_MAX_BYTES {
        return Err(ConfigError::TooLarge { path: path.to_path_buf() });
    }
    let text = std::fs::read_to_string(path).map_err(read)?;
    let refused =
        |error: toml::de::Error| ConfigError::File { path: path.into(), message: error.to_string() };
    let keys: toml::Table = toml::from_str(&text).map_err(refused)?;
    let mut values = values_of(&toml::from_str(&text).map_err(refused)?)?;
    values.retain(|key, _| keys.contains_key(key));
    Ok(Given(values))
}

fn env_name(key: &str) -> String {
    format!("{ENV_PREFIX}{}", key.to_uppercase())
}

/// Variables of that prefix that are no settings of the server: the agent's, which may run beside it, those of its hooks, of tests, and
/// those that container engines make of a service's name.
const OTHERS: [&str; 18] = [
    "CONFIG",
    "SERVER",
    "TOKEN",
    "TOKEN_FILE",
    "FINGERPRINT",
    "CA",
    "NAMESPACE",
    "NAMESPACE_KEY",
    "ENV",
    "URL",
    "PORT",
    "VM",
    "JOB",
    "RUN",
    "DISKS",
    "RESULT",
    "BACKUP",
    "ERROR",
];
const OTHER_PREFIXES: [&str; 14] = [
    "NAMESPACE_KEY_",
    "SERVICE_",
    "PORT_",
    "TEST_",
    "TESTS_",
    "BENCH_",
    "BIN_DIR",
    "CHROMIUM",
    "CRASHES",
    "EACH_EVENT",
    "FAULT_SEEDS",
    "MODEL_",
    "REPLAY",
    "SEED",
];

/// Returns true for a variable that Kubernetes made of a service whose name begins with ours, as `holdfast-server`.
fn is_of_a_service(rest: &str, value: &OsStr) -> bool {
    let is_address =
        || value.to_str().is_some_and(|value| ["tcp://", "udp://"].iter().any(|of| value.starts_with(of)));
    let after_port =
        rest.rsplit_once("PORT_").map(|(_, after)| after.trim_start_matches(|of: char| of.is_ascii_digit()));
    rest.contains("SERVICE_HOST")
        || rest.contains("SERVICE_PORT")
        || after_port.is_some_and(|after| after.starts_with("_TCP") || after.starts_with("_UDP"))
        || (rest.ends_with("PORT") && is_address())
}

/// Refuses names from the environment that look like a setting and are none: what they were meant to say would not hold.
///
/// # Errors
/// [`ConfigError::UnknownEnv`]
pub fn check_env(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<(), ConfigError> {
    let parser = Settings::augment_args(Command::new("environment"));
    let keys =
        || parser.get_arguments().map(|arg| (arg.get_id().as_str(), arg.get_long().unwrap_or_default()));
    for (name, value) in variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value))) {
        let Some(rest) = name.strip_prefix(ENV_PREFIX) else { continue };
        let is_other = OTHERS.contains(&rest) || OTHER_PREFIXES.iter().any(|prefix| rest.starts_with(prefix));
        if is_other || is_of_a_service(rest, &value) || keys().any(|(key, _)| key.to_uppercase() == rest) {
            continue;
        }
        let flag = rest.to_lowercase().replace('_', "-");
        let meant = keys().find(|(_, long)| *long == flag).map(|(key, _)| env_name(key));
        return Err(ConfigError::UnknownEnv { name, meant });
    }
    Ok(())
}

fn hint(name: Option<&String>) -> String {
    name.map(|name| format!(" (it is {name})")).unwrap_or_default()
}

/// Values from the environment go through the parsers of the flags, so that both accept the same values.
fn read_env(env: &dyn Fn(&str) -> Option<OsString>) -> Result<Given, ConfigError> {
    let parser =
        Settings::augment_args(Command::new("environment").no_binary_name(true).disable_help_flag(true));
    let mut words = Vec::new();
    for arg in parser.get_arguments() {
        let (key, Some(long)) = (arg.get_id().as_str(), arg.get_long()) else { continue };
        let Some(value) = env(&env_name(key)) else { continue };
        let mut word = OsString::from(format!("--{long}="));
        word.push(value);
        if let Err(error) = parser.clone().try_get_matches_from([&word]) {
            return Err(ConfigError::Env { name: env_name(key), message: first_line(&error) });
        }
        words.push(word);
    }
    parser
        .try_get_matches_from(words)
        .and_then(|matches| Given::from_arg_matches(&matches))
        .map_err(|error| ConfigError::Env { name: format!("{ENV_PREFIX}*"), message: first_line(&error) })
}

/// Without clap's usage text, which is about flags.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or(&text).trim_start_matches("error: ").to_owned()
}

/// Checks what no type can express.
fn check(resolved: &Resolved) -> Result<(), ConfigError> {
    let settings = &resolved.settings;
    match (&settings.tls_cert, &settings.tls_key) {
        (Some(_), None) => return Err(resolved.refuse("tls_cert", "a certificate also needs tls_key")),
        (None, Some(_)) => return Err(resolved.refuse("tls_key", "a key also needs tls_cert")),
        _ => {}
    }
    if settings.key_command.is_some() && settings.key_passphrase_file.is_some() {
        return Err(resolved.refuse("key_command", "there is a key_passphrase_file, too: name one of them"));
    }
    super::s3::check(settings).map_err(|(key, message)| resolved.refuse(key, message))?;
    // Below 10 s an agent on a busy line would lose its session; a day is beyond any pause worth waiting for.
    if !(10..=86_400).contains(&settings.lease_secs) {
        return Err(resolved.refuse("lease_secs", "must be between 10 and 86400 seconds"));
    }
    if settings.reread_days > REREAD_DAYS_MAX {
        return Err(resolved.refuse("reread_days", format!("must be between 0 and {REREAD_DAYS_MAX} days")));
    }
    if settings.scrub_days > SCRUB_DAYS_MAX {
        return Err(resolved.refuse("scrub_days", format!("must be between 0 and {SCRUB_DAYS_MAX} days")));
    }
    if settings.index_memory.0 < 1 << 20 || settings.index_memory.0 > 64 << 30 {
        return Err(resolved.refuse("index_memory", "must be between 1MiB and 64GiB"));
    }
    for (key, count) in [
        ("max_sessions", settings.max_sessions),
        ("max_streams", settings.max_streams),
        ("max_restores", settings.max_restores),
        ("max_connections", settings.max_connections),
    ] {
        if !(1..=10_000).contains(&count) {
            return Err(resolved.refuse(key, "must be between 1 and 10000"));
        }
    }
    for (key, percent) in [("task_share", settings.task_share), ("task_share_busy", settings.task_share_busy)]
    {
        if !(1..=100).contains(&percent) {
            return Err(resolved.refuse(key, "must be between 1 and 100 percent"));
        }
    }
    if let Some(name) = settings.tls_names.iter().find(|name| !crate::tls::is_certificate_name(name)) {
        return Err(
            resolved.refuse("tls_names", format!("{name:?} is neither a host name nor an IP address"))
        );
    }
    if let Err(error) = EnvFilter::builder().parse(&settings.log_level) {
        return Err(resolved.refuse("log_level", error.to_string()));
    }
    Ok(())
}
