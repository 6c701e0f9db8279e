use std::collections::HashMap;
use std::io::Write as _;

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    given: Given,
}

fn flags(words: &[&str]) -> Given {
    Flags::try_parse_from(std::iter::once(&"x").chain(words)).unwrap().given
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn with(
    words: &[&str],
    env: &[(&str, &str)],
    file: Option<&tempfile::NamedTempFile>,
) -> Result<Resolved, ConfigError> {
    let env: HashMap<String, String> =
        env.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    resolve(&flags(words), file.map(tempfile::NamedTempFile::path), &|name| env.get(name).map(Into::into))
}

fn origin(resolved: &Resolved, wanted: &str) -> Origin {
    resolved.entries().find(|(key, ..)| *key == wanted).unwrap().2.clone()
}

#[test]
fn every_place_beats_the_ones_below_it() {
    let config = file("lease_secs = 33\nreserve = \"1GiB\"\nmax_streams = 3\nlog_format = \"json\"\n");
    let env = [("HOLDFAST_LEASE_SECS", "44"), ("HOLDFAST_RESERVE", "2GiB")];
    let resolved = with(&["--lease-secs", "55"], &env, Some(&config)).unwrap();
    let settings = &resolved.settings;
    assert_eq!(settings.lease_secs, 55);
    assert_eq!(settings.reserve, Reserve::Bytes(ByteSize(2 << 30)));
    assert_eq!(settings.max_streams, 3);
    assert_eq!(settings.log_format, LogFormat::Json);
    assert_eq!(settings.max_sessions, 512);
    assert_eq!(origin(&resolved, "lease_secs"), Origin::Flag);
    assert_eq!(origin(&resolved, "reserve"), Origin::Env("HOLDFAST_RESERVE".into()));
    assert_eq!(origin(&resolved, "max_streams"), Origin::File(config.path().into()));
    assert_eq!(origin(&resolved, "max_sessions"), Origin::Default);
}

/// One more key than a flag, a variable and a line of the file can carry would be a second precedence.
const KEYS: [(&str, &str, &str); 48] = [
    ("data_dir", "/d", "\"/d\""),
    ("grpc", "0.0.0.0:1", "\"0.0.0.0:1\""),
    ("advertise", "a.example,[::1]:9", "[\"a.example:7440\", \"[::1]:9\"]"),
    ("http", "[::]:2", "\"[::]:2\""),
    ("tls_cert", "/c", "\"/c\""),
    ("tls_key", "/k", "\"/k\""),
    ("tls_names", "a,b", "[\"a\", \"b\"]"),
    ("lease_secs", "77", "77"),
    ("reread_days", "9", "9"),
    ("scrub_days", "8", "8"),
    ("parity", "10+1", "\"10+1\""),
    ("without_keys", "true", "true"),
    ("s3", "s3://abc/x", "\"s3://abc/x\""),
    ("s3_endpoint", "https://e:1", "\"https://e:1\""),
    ("s3_region", "eu-west-1", "\"eu-west-1\""),
    ("s3_path_style", "true", "true"),
    ("s3_ca", "/a", "\"/a\""),
    ("s3_credentials", "/b", "\"/b\""),
    ("s3_profile", "p", "\"p\""),
    ("s3_checksum", "crc32c", "\"crc32c\""),
    ("s3_class", "STANDARD_IA", "\"STANDARD_IA\""),
    ("s3_sse", "kms:k", "\"kms:k\""),
    ("s3_plain", "true", "true"),
    ("s3_copies", "9", "9"),
    ("s3_rate", "7MiB", "\"7MiB\""),
    (
        "s3_rate_windows",
        "mon 08:00-18:00 1MiB,22:00-06:00 0",
        "[\"mon 08:00-18:00 1MiB\", \"22:00-06:00 0\"]",
    ),
    ("s3_requests", "90", "90"),
    ("s3_primary", "true", "true"),
    ("s3_move_until_free", "35", "35"),
    ("s3_archive_class", "DEEP_ARCHIVE", "\"DEEP_ARCHIVE\""),
    ("s3_thaw_days", "9", "9"),
    ("s3_object_lock", "governance", "\"governance\""),
    ("s3_thaw_cache", "5GiB", "\"5GiB\""),
    ("s3_thaw_cache_days", "3", "3"),
    ("s3_prices", "/p", "\"/p\""),
    ("reserve", "3MiB", "\"3MiB\""),
    ("memory", "1GiB", "\"1GiB\""),
    ("index_memory", "8MiB", "8388608"),
    ("max_sessions", "1", "1"),
    ("max_streams", "2", "2"),
    ("max_restores", "3", "3"),
    ("max_connections", "4", "4"),
    ("task_rate", "9MiB", "\"9MiB\""),
    ("task_share", "50", "50"),
    ("task_share_busy", "5", "5"),
    ("metrics_open", "true", "true"),
    ("log_level", "debug", "\"debug\""),
    ("log_format", "json", "\"json\""),
];

#[test]
fn every_key_can_come_from_every_place() {
    let keys = &KEYS;
    let text: String = keys.iter().map(|(key, _, toml)| format!("{key} = {toml}\n")).collect();
    let config = file(&text);
    let from_file = with(&[], &[], Some(&config)).unwrap();

    let env: Vec<(String, &str)> =
        keys.iter().map(|(key, value, _)| (format!("HOLDFAST_{}", key.to_uppercase()), *value)).collect();
    let env: Vec<(&str, &str)> = env.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    let from_env = with(&[], &env, None).unwrap();

    let words: Vec<String> = keys
        .iter()
        .map(|(key, value, _)| {
            // A setting with several values has a flag for one.
            let flag = match *key {
                "tls_names" | "s3_rate_windows" => key.trim_end_matches('s').replace('_', "-"),
                key => key.replace('_', "-"),
            };
            format!("--{flag}={value}")
        })
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let from_flags = with(&words, &[], None).unwrap();

    assert_eq!(from_file.settings, from_env.settings);
    assert_eq!(from_file.settings, from_flags.settings);
    assert_eq!(from_flags.entries().count(), keys.len(), "a key is missing in this test");
    assert!(from_flags.entries().all(|(.., origin)| *origin == Origin::Flag));
    assert!(from_env.entries().all(|(.., origin)| matches!(origin, Origin::Env(_))));
}

#[test]
fn unknown_keys_are_refused_by_name_file_and_line() {
    let config = file("lease_secs = 60\n\nleese_secs = 61\n");
    let message = with(&[], &[], Some(&config)).unwrap_err().to_string();
    for part in ["leese_secs", "line 3", config.path().to_str().unwrap()] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

#[test]
fn bad_values_name_their_place() {
    let config = file("lease_secs = \"soon\"\n");
    let message = with(&[], &[], Some(&config)).unwrap_err().to_string();
    assert!(message.contains("line 1") && message.contains("lease_secs"), "{message}");

    let message = with(&[], &[("HOLDFAST_GRPC", "nonsense")], None).unwrap_err().to_string();
    assert!(message.contains("HOLDFAST_GRPC") && message.contains("nonsense"), "{message}");

    let config = file("max_streams = 0\n");
    let message = with(&[], &[], Some(&config)).unwrap_err().to_string();
    assert!(
        message.contains("max_streams") && message.contains(config.path().to_str().unwrap()),
        "{message}"
    );

    for words in [["--s3", "abc"], ["--s3-endpoint", "e:1"], ["--s3-sse", "aes"], ["--s3-copies", "33"]] {
        let error = with(&words, &[], None).unwrap_err();
        assert!(matches!(error, ConfigError::Value { origin: Origin::Flag, .. }), "{error}");
    }

    for words in
        [["--tls-cert", "/x"], ["--lease-secs", "1"], ["--log-level", "a=b=c"], ["--tls-name", "a b"]]
    {
        let error = with(&words, &[], None).unwrap_err();
        assert!(matches!(error, ConfigError::Value { origin: Origin::Flag, .. }), "{error}");
    }
}

/// Retention in a bucket needs a bucket, and checksums that prove that an object is what was sent.
#[test]
fn retention_in_a_bucket_needs_what_it_stands_on() {
    for (words, part) in [
        (&["--s3-object-lock", "compliance"][..], "set s3"),
        (&["--s3", "s3://abc", "--s3-object-lock", "governance", "--s3-checksum", "off"], "set s3_checksum"),
    ] {
        let message = with(words, &[], None).unwrap_err().to_string();
        assert!(message.contains("s3_object_lock") && message.contains(part), "{message}");
    }
    for mode in ["off", "governance", "compliance"] {
        with(&["--s3", "s3://abc", "--s3-object-lock", mode], &[], None).unwrap();
    }
    with(&["--s3-object-lock", "off"], &[], None).unwrap();
}

#[test]
fn the_config_file_may_be_named_by_the_environment() {
    let config = file("lease_secs = 99\n");
    let path = config.path().to_str().unwrap();
    assert_eq!(with(&[], &[("HOLDFAST_CONFIG", path)], None).unwrap().settings.lease_secs, 99);
    let message = with(&[], &[("HOLDFAST_CONFIG", "/no/such/file")], None).unwrap_err().to_string();
    assert!(message.contains("/no/such/file"), "{message}");
}

#[test]
fn an_unknown_variable_is_refused_and_not_ignored() {
    let check_value = |name: &str, value: &str| check_env(std::iter::once((name.into(), value.into())));
    let check = |name: &str| check_value(name, "x");
    for fine in
        ["PATH", "HOLDFAST_ENCRYPTION", "HOLDFAST_S3_RATE_WINDOWS", "HOLDFAST_CONFIG", "HOLDFAST_TOKEN_FILE"]
    {
        assert!(check(fine).is_ok(), "{fine}");
    }
    // Kubernetes makes these for a service that is called holdfast.
    for fine in [
        "HOLDFAST_PORT",
        "HOLDFAST_PORT_7440_TCP_ADDR",
        "HOLDFAST_SERVICE_HOST",
        "HOLDFAST_SERVICE_PORT_GRPC",
    ] {
        assert!(check(fine).is_ok(), "{fine}");
    }
    // And these for services that are called holdfast-server and holdfast-web.
    for (fine, value) in [
        ("HOLDFAST_SERVER_SERVICE_HOST", "10.0.0.1"),
        ("HOLDFAST_SERVER_SERVICE_PORT", "7440"),
        ("HOLDFAST_SERVER_SERVICE_PORT_GRPC", "7440"),
        ("HOLDFAST_SERVER_PORT", "tcp://10.0.0.1:7440"),
        ("HOLDFAST_SERVER_PORT_7440_TCP", "tcp://10.0.0.1:7440"),
        ("HOLDFAST_SERVER_PORT_7440_TCP_ADDR", "10.0.0.1"),
        ("HOLDFAST_SERVER_PORT_7440_TCP_PORT", "7440"),
        ("HOLDFAST_SERVER_PORT_7440_TCP_PROTO", "tcp"),
        ("HOLDFAST_WEB_PORT", "udp://10.0.0.2:443"),
        ("HOLDFAST_WEB_PORT_443_UDP_PROTO", "udp"),
    ] {
        assert!(check_value(fine, value).is_ok(), "{fine}");
    }
    for (wrong, value) in [
        ("HOLDFAST_GRPC_PORT", "7440"),
        ("HOLDFAST_HTTP_PORT", ""),
        ("HOLDFAST_PORTS", "tcp://10.0.0.1:7440"),
    ] {
        assert!(check_value(wrong, value).is_err(), "{wrong}");
    }
    let said = check("HOLDFAST_ENCRYPT").unwrap_err().to_string();
    assert!(said.contains("HOLDFAST_ENCRYPT:") && said.contains("(it is HOLDFAST_ENCRYPTION)"), "{said}");
    let said = check("HOLDFAST_LEASE_SECONDS").unwrap_err().to_string();
    assert!(said.contains("no such setting; "), "{said}");
}

/// The help of the program says how variables are called: by the key, which three flags are not.
#[test]
fn the_help_names_the_settings_whose_flags_have_other_names() {
    use clap::CommandFactory as _;
    let command = Flags::command();
    let odd: Vec<String> = command
        .get_arguments()
        .filter_map(|arg| Some((arg.get_id().as_str(), arg.get_long()?)))
        .filter(|(key, long)| key.replace('_', "-") != *long)
        .map(|(key, long)| format!("{key} (--{long})"))
        .collect();
    assert_eq!(
        odd,
        ["tls_names (--tls-name)", "encryption (--encrypt)", "s3_rate_windows (--s3-rate-window)"]
    );
    let help = include_str!("../cli/mod.rs");
    assert!(odd.iter().all(|odd| help.contains(odd)), "{odd:?}");
}

fn document(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Keys, default and description, as the page on settings has them, a row each.
fn documented() -> Vec<(Vec<String>, String, String)> {
    let text = document("docs/operations/settings.md");
    let section = text.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let mut cells = row.trim_end_matches(" |").splitn(3, " | ").map(str::to_owned);
        let mut cell = || cells.next().unwrap_or_else(|| panic!("three cells: {row}"));
        let keys = format!("`{}", cell());
        let keys = keys.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (keys, cell(), cell())
    })
    .collect()
}

/// Returns the words for a value's unit: its descriptions have one of them.
fn unit(value_name: &str) -> &'static [&'static str] {
    match value_name {
        "SECONDS" => &["second"],
        "DAYS" => &["day"],
        "PERCENT" => &["percent"],
        "SIZE" => &["byte", "memory", "room", "space", "buffer"],
        _ => &[""],
    }
}

/// Every setting is in the table, under its name and the name of its flag, with its default and its unit; the help says the
/// same.
#[test]
fn the_documents_and_the_help_tell_every_setting_its_default_and_its_unit() {
    use clap::CommandFactory as _;
    let command = Flags::command();
    let defaults = serde_json::to_value(Settings::default()).unwrap();
    let mut rows = documented();
    for arg in command.get_arguments() {
        let (key, long) = (arg.get_id().as_str(), arg.get_long().unwrap());
        let at = rows.iter().position(|(keys, ..)| keys.iter().any(|found| found == key));
        let (keys, default, text) = &mut rows[at.unwrap_or_else(|| panic!("{key} is not in the table"))];
        keys.retain(|found| found != key);
        let flag = format!("--{long}");
        if key.replace('_', "-") != long {
            assert!(keys.contains(&flag), "{key}: the table does not say {flag}");
        }
        keys.retain(|found| *found != flag);

        let help = arg.get_help().unwrap().to_string();
        let told = help.split_once("[default: ").map(|(_, rest)| rest.trim_end_matches(']'));
        let told = told.or_else(|| arg.get_default_values().first()?.to_str());
        let shown = default.trim_matches('`');
        match &defaults[key] {
            serde_json::Value::Null => {
                let is_none = shown == "\u{2013}" && told.is_none_or(|told| told == "the bucket's");
                let is_made = told.is_some_and(|told| default.replace('`', "") == told);
                assert!(
                    is_none || is_made,
                    "{key}: {default} in the table, {told:?} in the help, none in the code"
                );
            }
            serde_json::Value::Array(none) if none.is_empty() => {
                assert!(shown == "\u{2013}" && told.is_none(), "{key}: {default}, {told:?}");
            }
            value => {
                for told in [Some(shown), told] {
                    let told = told.unwrap_or_else(|| panic!("{key}: its default is not in the help"));
                    let parsed = with(&[&format!("{flag}={told}")], &[], None).unwrap();
                    let (_, parsed, _) = parsed.entries().find(|(name, ..)| *name == key).unwrap();
                    assert_eq!(parsed, value, "{key}: {told}");
                }
            }
        }
        let name = arg.get_value_names().map_or("", |names| names[0].as_str());
        for (suffix, wanted) in [("_secs", "SECONDS"), ("_days", "DAYS")] {
            assert!(!key.ends_with(suffix) || name == wanted, "{key}: {name}");
        }
        for text in [&*text, &help] {
            let text = text.to_lowercase();
            let has_unit = unit(name).iter().any(|word| text.contains(word));
            assert!(has_unit, "{key}: its unit is missing in {text:?}");
        }
    }
    let left: Vec<_> = rows.iter().filter(|(keys, ..)| !keys.is_empty()).collect();
    assert!(left.is_empty(), "no such settings: {left:?}");
}

/// Whatever the documents, the help and the files for containers call `HOLDFAST_…` is known.
#[test]
fn the_documents_name_no_variable_that_does_not_exist() {
    let mut count = 0;
    for name in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/ARCHITECTURE.md",
        "docs/operations/agent.md",
        "docs/operations/bucket.md",
        "docs/operations/encryption.md",
        "docs/operations/install.md",
        "docs/operations/recovery.md",
        "docs/operations/settings.md",
        "docs/SECURITY.md",
        "docs/BENCHMARKS.md",
        "docker-compose.yml",
        "Dockerfile",
        "deploy/compose.env",
        "deploy/s3.env",
        "server/src/cli/mod.rs",
        "client/src/cli/args.rs",
    ] {
        let text = document(name);
        for (at, _) in text.match_indices(ENV_PREFIX) {
            let rest = &text[at..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            // The beginning alone, and `HOLDFAST_…`.
            if end > ENV_PREFIX.len() {
                check_env(std::iter::once((rest[..end].into(), "x".into())))
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count}");
}
