//! `/metrics` of a server at work.

use super::life::get_with;
use super::*;
use crate::metrics::tests::parse;

/// The value of one series.
async fn value(fixture: &Fixture, family: &str, series: &str) -> f64 {
    let families = scrape(fixture).await;
    let family = families.get(family).unwrap_or_else(|| panic!("no {family}"));
    *family.samples.get(series).unwrap_or_else(|| panic!("no {series} in {:?}", family.samples))
}

async fn scrape(fixture: &Fixture) -> std::collections::BTreeMap<String, crate::metrics::tests::Parsed> {
    let answer = get_with(fixture, "/metrics", &fixture.admin_token()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    // Small answers come with a length, large ones in chunks.
    parse(&if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        dechunk(body)
    } else {
        body.to_owned()
    })
}

fn dechunk(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        text += &rest[..length];
        body = &rest[length + 2..];
    }
    text
}

/// Refused before its token is looked up, so nothing else counts it.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_back_off_refuses_are_counted() {
    let fixture = Fixture::start_with(|settings| settings.metrics_open = true).await;
    let app = Arc::clone(fixture.server.app());
    let origin = std::net::SocketAddr::from(([127, 0, 0, 1], 1)).into();
    let mut turns = Vec::new();
    while let Ok(turn) = app.auth.back_off().turn(origin, None) {
        turns.push(turn);
    }
    let answer = get_with(&fixture, "/api/v1/server", &format!("hf_{}", "x".repeat(40))).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    drop(turns);
    let series = "holdfast_auth_failures_total{protocol=\"http\",reason=\"backed_off\"}";
    assert_eq!(value(&fixture, "holdfast_auth_failures", series).await, 1.0);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_of_the_whole_repository_may_read_them() {
    let fixture = Fixture::start().await;
    let cases = [
        (String::new(), "401"),
        ("hf_nonsense".to_owned(), "401"),
        (fixture.token(Role::Backup, &[]), "403"),
        (fixture.token(Role::Restore, &[]), "403"),
        (fixture.token(Role::Operator, &["some"]), "403"),
        (fixture.token(Role::Operator, &[]), "200"),
        (fixture.admin_token(), "200"),
    ];
    for (token, status) in cases {
        let answer = get_with(&fixture, "/metrics", &token).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{status}: {answer}");
        assert_eq!(answer.contains("holdfast_build_info"), status == "200");
    }
    let family = "holdfast_auth_failures";
    let refused =
        |reason: &str| format!("holdfast_auth_failures_total{{protocol=\"http\",reason=\"{reason}\"}}");
    assert_eq!(value(&fixture, family, &refused("unauthenticated")).await, 2.0);
    assert_eq!(value(&fixture, family, &refused("forbidden")).await, 3.0);
    fixture.server.stop().await.unwrap();

    let fixture = Fixture::start_with(|settings| settings.metrics_open = true).await;
    let answer = get_with(&fixture, "/metrics", "").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    fixture.server.stop().await.unwrap();
}

/// A server with a backup that was committed and read back, one that was aborted, and one in progress.
async fn at_work() -> (Fixture, Client, v1::CommitResponse) {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let commit = admin.back_up("", "web").await.unwrap();
    let session = admin.start("", "db").await.unwrap().session_id;
    admin.abort(&session).await.unwrap();
    admin.start("", "mail").await.unwrap();
    admin.read_disk(&commit.backup_id).await.unwrap();
    assert!(admin.read_disk("01ARZ3NDEKTSV4RRFFQ69G5FAV").await.is_err());
    (fixture, admin, commit)
}

/// The labels of the jobs of [`at_work`].
const JOB: &str = "{namespace=\"default\",backup_job=\"nightly\"}";

#[tokio::test(flavor = "multi_thread")]
async fn counters_agree_with_what_happened() {
    let (fixture, admin, commit) = at_work().await;
    admin.record_verification(&commit.backup_id, "").await.unwrap();
    admin.record_verification(&commit.backup_id, "damaged").await.unwrap();
    let counted = async |family: &str, labels: &str| {
        value(&fixture, family, &format!("{family}_total{{{labels}}}")).await
    };
    for (outcome, count) in [("done", 1.0), ("aborted", 1.0), ("expired", 0.0)] {
        let labels = format!("namespace=\"default\",backup_job=\"nightly\",outcome=\"{outcome}\"");
        assert_eq!(counted("holdfast_backups", &labels).await, count, "{outcome}");
    }
    assert_eq!(value(&fixture, "holdfast_sessions", "holdfast_sessions").await, 1.0);
    let details: Vec<DetailRow> = serde_json::from_str(&commit.details).unwrap();
    for (name, sum) in [
        ("pre_comp", details.iter().map(|row| row.bytes).sum::<u64>()),
        ("post_lc", details.iter().map(|row| row.post_lc).sum()),
        ("meta", details.iter().map(|row| row.meta_bytes).sum()),
        ("wire", details.iter().map(|row| row.wire_bytes).sum()),
    ] {
        let family = format!("holdfast_backup_{name}_bytes");
        assert_eq!(value(&fixture, &family, &format!("{family}_total{JOB}")).await, sum as f64, "{name}");
    }
    for (method, code) in [("Backup/Commit", "OK"), ("Restore/ReadDisk", "NOT_FOUND")] {
        let labels = format!("method=\"{method}\",code=\"{code}\"");
        assert_eq!(counted("holdfast_grpc_requests", &labels).await, 1.0, "{method}");
    }
    for (family, outcomes) in
        [("holdfast_restores", ["done", "failed"]), ("holdfast_verifications", ["sound", "damaged"])]
    {
        for outcome in outcomes {
            assert_eq!(counted(family, &format!("outcome=\"{outcome}\"")).await, 1.0, "{outcome}");
        }
    }
    assert!(counted("holdfast_network_received_bytes", "listener=\"grpc\"").await > 1000.0);
    let scrapes = "method=\"GET\",route=\"/metrics\",code=\"200\"";
    assert!(counted("holdfast_http_requests", scrapes).await > 5.0);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_agree_with_the_catalog() {
    let (fixture, admin, _) = at_work().await;
    let families = scrape(&fixture).await;
    let sample = |family: &str, labels: &str| families[family].samples[&format!("{family}{labels}")];
    let stats = fixture.server.app().engine.stats().unwrap();
    assert_eq!(sample("holdfast_index_entries", ""), stats.index.entries as f64);
    assert_eq!(sample("holdfast_volume_size_bytes", ""), stats.space.unwrap().total_bytes as f64);
    assert_eq!(sample("holdfast_read_only", ""), 0.0);
    assert!(sample("process_resident_memory_bytes", "") > 1e6);

    let rows = admin.report("").await.unwrap();
    let (wire, meta) = (rows.iter().map(|row| row.wire_bytes), rows.iter().map(|row| row.meta_bytes));
    assert_eq!(sample("holdfast_recorded_wire_bytes", JOB), wire.sum::<u64>() as f64);
    assert_eq!(sample("holdfast_recorded_meta_bytes", JOB), meta.sum::<u64>() as f64);
    assert_eq!(sample("holdfast_recorded_runs", JOB), 2.0, "the one in progress is not on record yet");
    for (outcome, disks) in [("done", 1.0), ("failed", 1.0)] {
        let labels = JOB.replace('}', &format!(",outcome=\"{outcome}\"}}"));
        assert_eq!(sample("holdfast_recorded_disks", &labels), disks, "{outcome}");
    }
    for (outcome, runs) in [("done", 1.0), ("partly", 0.0), ("failed", 1.0)] {
        assert_eq!(
            sample("holdfast_runs_last_day", &format!("{{outcome=\"{outcome}\"}}")),
            runs,
            "{outcome}"
        );
    }

    let namespace = |family: &str| sample(family, "{namespace=\"default\"}");
    assert_eq!(namespace("holdfast_restore_points"), 1.0);
    assert_eq!(namespace("holdfast_protected_bytes"), 0.0, "the disk is all zeros");
    assert_eq!(families["holdfast_protected_bytes"].samples.len(), 1, "there is one namespace");
    let containers = fixture.catalog().container_totals(None).unwrap();
    let stored = containers.iter().map(|totals| totals.stored_bytes).sum::<u64>();
    assert_eq!(namespace("holdfast_stored_bytes"), stored as f64);
    let part = |part: &str| sample("holdfast_repository_bytes", &format!("{{part=\"{part}\"}}"));
    assert_eq!(part("data") + part("recipe"), stored as f64);
    assert!(part("catalog") > 0.0);
    let age = namespace("holdfast_newest_restore_point_age_seconds");
    assert!((0.0..3600.0).contains(&age), "{age}");
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_make_no_series() {
    let fixture = Fixture::start().await;
    for number in 0..50 {
        get_with(&fixture, &format!("/made/up/{number}"), "hf_nonsense").await;
    }
    let families = scrape(&fixture).await;
    let requests = &families["holdfast_http_requests"].samples;
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!(
        requests["holdfast_http_requests_total{method=\"GET\",route=\"none\",code=\"404\"}"], 50.0,
        "{requests:?}"
    );
    fixture.server.stop().await.unwrap();
}
