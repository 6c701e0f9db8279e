//! The files below `deploy/` and the compose file against the program they are for: no container engine is needed
//! to know that a dashboard asks for metrics that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::names::{self, Definition, Kind};

/// Labels that Prometheus itself gives.
const GIVEN: [&str; 3] = ["instance", "job", "le"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_yaml_ng::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn dashboard() -> Value {
    serde_json::from_str(&text("deploy/grafana/dashboards/holdfast.json")).unwrap()
}

/// The metric a word of a query names, if it looks like one of ours.
fn definition(word: &str) -> Option<&'static Definition> {
    if !word.starts_with("holdfast_") && !word.starts_with("process_") {
        return None;
    }
    let found = names::ALL.iter().find(|definition| {
        definition.name == word
            || definition.kind == Kind::Histogram
                && ["_bucket", "_sum", "_count"]
                    .iter()
                    .any(|end| word.strip_suffix(end) == Some(definition.name))
    });
    Some(found.unwrap_or_else(|| panic!("there is no metric {word}")))
}

/// Checks a query's metrics and the labels it selects by; returns the metrics.
fn check_query(query: &str) -> BTreeSet<&'static str> {
    assert_eq!(query.matches('(').count(), query.matches(')').count(), "{query}");
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut used = BTreeSet::new();
    let mut rest = query;
    while let Some(start) = rest.find(is_word) {
        rest = &rest[start..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        let Some(definition) = definition(word) else { continue };
        used.insert(definition.name);
        let Some(selectors) = after.strip_prefix('{') else { continue };
        let selectors = selectors.split_once('}').unwrap_or_else(|| panic!("{query}")).0;
        for selector in selectors.split("\",") {
            let label = selector.split(|c| !is_word(c)).next().unwrap();
            let known = definition.labels.contains(&label) || GIVEN.contains(&label);
            assert!(known, "{} has no label {label}: {query}", definition.name);
        }
    }
    used
}

/// Collects every value of `key` anywhere below.
fn all<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get(key));
            map.values().for_each(|value| all(value, key, found));
        }
        Value::Array(list) => list.iter().for_each(|value| all(value, key, found)),
        _ => {}
    }
}

fn texts<'a>(value: &'a Value, key: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    all(value, key, &mut found);
    found.into_iter().filter_map(Value::as_str).collect()
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let dashboard = dashboard();
    let queries = [texts(&dashboard, "expr"), texts(&dashboard, "definition")].concat();
    assert!(queries.len() > 40, "{}", queries.len());
    // A gauge that begins with a job's first full never grew by it.
    assert!(queries.iter().all(|query| !query.contains("delta(")), "increase of a counter");
    let used: BTreeSet<&str> = queries.into_iter().flat_map(check_query).collect();
    // Metrics that it is there to show.
    for needed in [
        "holdfast_protected_bytes",
        "holdfast_recorded_post_lc_bytes",
        "holdfast_recorded_done_post_lc_bytes",
        "holdfast_backup_post_lc_bytes_total",
        "holdfast_runs_last_day",
        "holdfast_volume_free_bytes",
        "holdfast_index_memory_bytes",
        "holdfast_restored_bytes_total",
        "holdfast_grpc_request_duration_seconds",
        "holdfast_newest_restore_point_age_seconds",
    ] {
        assert!(used.contains(needed), "{needed} is shown nowhere");
    }
}

#[test]
fn the_dashboard_works_with_any_data_source() {
    let dashboard = dashboard();
    let mut sources = Vec::new();
    all(&dashboard, "datasource", &mut sources);
    assert!(sources.len() > 40);
    assert!(sources.iter().all(|source| source["uid"] == "${datasource}"), "{sources:?}");
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "ids are unique");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{place}");
        // A unit for all values, or column by column.
        let united = !texts(panel, "unit").is_empty() || texts(panel, "id").contains(&"unit");
        assert!(united, "{} has a unit", panel["title"]);
    }
}

#[test]
fn alerts_ask_for_metrics_that_exist_and_say_what_to_do() {
    let alerts = yaml("deploy/alerts.yml");
    let queries = texts(&alerts, "expr");
    assert!(queries.len() >= 10);
    let used: BTreeSet<&str> = queries.iter().flat_map(|query| check_query(query)).collect();
    for needed in [
        "holdfast_newest_restore_point_age_seconds",
        "holdfast_volume_free_bytes",
        "holdfast_read_only",
        "holdfast_damaged_restore_points",
        "holdfast_open_damage",
        "holdfast_scrub_pass_age_seconds",
        "holdfast_job_failing_vms",
        "holdfast_bucket_lag_seconds",
        "holdfast_bucket_failing",
        "holdfast_schedules_skipped_total",
        "holdfast_bucket_flawed_objects",
        "holdfast_bucket_retention_failing",
    ] {
        assert!(used.contains(needed), "no alert on {needed}");
    }
    for rule in alerts["groups"][0]["rules"].as_array().unwrap() {
        let name = rule["alert"].as_str().unwrap();
        assert!(name.starts_with("Holdfast"), "{name}");
        for part in ["summary", "description"] {
            assert!(rule["annotations"][part].as_str().is_some_and(|text| text.len() > 20), "{name}: {part}");
        }
        assert!(matches!(rule["labels"]["severity"].as_str(), Some("critical" | "warning")), "{name}");
    }
}

#[test]
#[should_panic(expected = "there is no metric")]
fn a_metric_that_does_not_exist_is_found() {
    check_query("sum (rate(holdfast_backups_totl{instance=\"x\"}[5m]))");
}

#[test]
#[should_panic(expected = "has no label")]
fn a_label_that_does_not_exist_is_found() {
    check_query("sum (holdfast_streams{instance=~\"x,y\",typ=\"ingest\"})");
}

#[test]
fn the_compose_file_confines_its_services_and_names_files_that_exist() {
    let compose = yaml("docker-compose.yml");
    let services = compose["services"].as_object().unwrap();
    assert_eq!(
        services.keys().map(String::as_str).collect::<Vec<_>>(),
        ["grafana", "holdfast", "prometheus", "s3", "s3-bucket"]
    );
    for (name, service) in services {
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["cap_drop"], serde_json::json!(["ALL"]), "{name}");
        assert_eq!(service["security_opt"], serde_json::json!(["no-new-privileges:true"]), "{name}");
        for volume in service["volumes"].as_array().unwrap() {
            let from = volume.as_str().unwrap().split(':').next().unwrap();
            match from.strip_prefix("./") {
                Some(path) => assert!(root().join(path).exists(), "{name} mounts {path}"),
                None => assert!(compose["volumes"].get(from).is_some(), "{name} mounts {from}"),
            }
        }
        for network in service["networks"].as_array().unwrap() {
            assert!(compose["networks"].get(network.as_str().unwrap()).is_some(), "{name}: {network}");
        }
    }
    assert_eq!(compose["networks"]["monitoring"]["internal"], true);
    assert!(services["prometheus"].get("ports").is_none(), "it must not be reachable from outside");
    let grafana = &services["grafana"];
    assert_eq!(grafana["ports"], serde_json::json!(["127.0.0.1:3000:3000"]), "it speaks plain HTTP");
    let password = grafana["environment"]["GF_SECURITY_ADMIN_PASSWORD"].as_str().unwrap();
    assert!(password.starts_with("${GRAFANA_PASSWORD:?"), "one that must be set");

    let prometheus = yaml("deploy/prometheus.yml");
    let scrape = &prometheus["scrape_configs"][0];
    assert_eq!(scrape["static_configs"][0]["targets"][0], "holdfast:7441");
    assert_eq!((&scrape["scheme"], &scrape["metrics_path"]), (&"https".into(), &"/metrics".into()));
    let rules = prometheus["rule_files"][0].as_str().unwrap();
    let mounted = |service: &str, at: &str| {
        let volumes = services[service]["volumes"].as_array().unwrap();
        volumes.iter().any(|volume| volume.as_str().unwrap().split(':').nth(1) == Some(at))
    };
    assert!(mounted("prometheus", rules), "{rules}");
    let dashboards = yaml("deploy/grafana/provisioning/dashboards/holdfast.yml");
    let folder = dashboards["providers"][0]["options"]["path"].as_str().unwrap();
    assert!(mounted("grafana", folder), "{folder}");
    let sources = yaml("deploy/grafana/provisioning/datasources/prometheus.yml");
    assert_eq!(sources["datasources"][0]["url"], "http://prometheus:9090");
}

/// The object store of the profile is one that the server is told of, and that tells the same secret; without the profile
/// nothing of it runs.
#[test]
fn the_profile_with_a_bucket_fits_together() {
    let compose = yaml("docker-compose.yml");
    let services = compose["services"].as_object().unwrap();
    for (name, service) in services {
        let is_of_profile = service.get("profiles") == Some(&serde_json::json!(["s3"]));
        assert_eq!(is_of_profile, name.starts_with("s3"), "{name}");
    }
    let file = text("deploy/s3.env");
    let settings: std::collections::BTreeMap<&str, &str> =
        file.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('=')).collect();
    let known = serde_json::to_value(crate::config::Settings::default()).unwrap();
    let known = |name: &str| known.get(name.trim_start_matches("HOLDFAST_").to_lowercase()).is_some();
    let ours: Vec<_> = settings.keys().filter(|name| name.starts_with("HOLDFAST_")).collect();
    assert!(ours.len() >= 5 && ours.iter().all(|name| known(name)), "{ours:?}");
    assert_eq!(settings["AWS_ACCESS_KEY_ID"], settings["ROOT_ACCESS_KEY"]);
    assert_eq!(settings["AWS_SECRET_ACCESS_KEY"], settings["ROOT_SECRET_KEY"]);
    assert_eq!(settings["HOLDFAST_S3_ENDPOINT"], "http://s3:7070");
    assert!(services["s3"]["command"].as_array().unwrap().contains(&":7070".into()));
    let (bucket, _) = holdfast_s3::parse_location(settings["HOLDFAST_S3"]).unwrap();
    assert!(services["s3-bucket"]["command"][0].as_str().unwrap().contains(&format!("--bucket {bucket}")));
    for name in ["s3", "s3-bucket"] {
        assert_eq!(services[name]["env_file"], "deploy/s3.env");
        assert!(services[name].get("ports").is_none(), "{name} must not be reachable from outside");
        assert_eq!(services[name]["networks"], serde_json::json!(["s3"]));
    }
    assert!(services["holdfast"]["networks"].as_array().unwrap().contains(&"s3".into()));
    assert_eq!(compose["networks"]["s3"]["internal"], true);
}

#[test]
fn the_image_runs_unprivileged_and_checks_its_health() {
    let file = text("Dockerfile");
    let last = file.rsplit("\nFROM ").next().unwrap();
    assert!(last.contains("\nUSER ${UID}:${UID}\n"), "not as root");
    assert!(last.contains("CMD [\"holdfast-server\", \"health\"]"), "without a shell");
    assert!(last.contains("ENTRYPOINT [\"holdfast-server\"]"));
    // Every setting it makes is one there is.
    let known = serde_json::to_value(crate::config::Settings::default()).unwrap();
    let compose = yaml("docker-compose.yml");
    let settings = text("deploy/compose.env");
    assert!(last.contains(" ca-certificates "), "what buckets over HTTPS are trusted by");
    let service = &compose["services"]["holdfast"];
    assert!(service.get("environment").is_none(), "it would win over the files that an administrator writes");
    assert_eq!(service["env_file"][0]["path"], "deploy/compose.env", "the first file loses");
    let variables = last
        .split([' ', '\n'])
        .filter_map(|word| word.split_once('=').map(|(name, _)| name))
        .filter(|name| name.starts_with("HOLDFAST_"))
        .chain(settings.lines().filter_map(|line| line.split_once('=').map(|(name, _)| name)));
    let mut count = 0;
    for variable in variables {
        let key = variable.trim_start_matches("HOLDFAST_").to_lowercase();
        assert!(known.get(&key).is_some(), "{variable}");
        count += 1;
    }
    assert_eq!(count, 5);
    // The compiler in the image is the one the repository asks for.
    let toolchain = text("rust-toolchain.toml");
    let channel = toolchain.split('"').nth(1).unwrap();
    assert!(
        file.contains(&format!("FROM rust:{channel}-"))
            && file.contains(&format!("RUSTUP_TOOLCHAIN={channel}\n"))
    );
}
