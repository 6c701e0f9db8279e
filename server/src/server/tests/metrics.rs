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

#[tokio::test(flavor = "multi_thread")]
async fn only_who_operates_the_whole_repository_reads_them() {
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

    let fixture = Fixture::start_with(|layer| layer.metrics_open = Some(true)).await;
    let answer = get_with(&fixture, "/metrics", "").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn they_agree_with_what_the_catalog_says() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let commit = admin.back_up("", "web").await.unwrap();
    let session = admin.start("", "db").await.unwrap().session_id;
    admin.abort(&session).await.unwrap();
    let _running = admin.start("", "mail").await.unwrap();
    admin.read_disk(&commit.backup_id).await.unwrap();
    assert!(admin.read_disk("01ARZ3NDEKTSV4RRFFQ69G5FAV").await.is_err());

    let ended = |outcome: &str| {
        format!(
            "holdfast_backups_total{{namespace=\"default\",backup_job=\"nightly\",outcome=\"{outcome}\"}}"
        )
    };
    assert_eq!(value(&fixture, "holdfast_backups", &ended("done")).await, 1.0);
    assert_eq!(value(&fixture, "holdfast_backups", &ended("aborted")).await, 1.0);
    assert_eq!(value(&fixture, "holdfast_backups", &ended("expired")).await, 0.0);
    assert_eq!(value(&fixture, "holdfast_sessions", "holdfast_sessions").await, 1.0);
    let job = "{namespace=\"default\",backup_job=\"nightly\"}";
    for (name, sum) in [
        ("pre_comp", commit.details.iter().map(|row| row.bytes).sum::<u64>()),
        ("post_lc", commit.details.iter().map(|row| row.post_lc).sum()),
        ("meta", commit.details.iter().map(|row| row.meta_bytes).sum()),
        ("wire", commit.details.iter().map(|row| row.wire_bytes).sum()),
    ] {
        let series = format!("holdfast_backup_{name}_bytes_total{job}");
        let counted = value(&fixture, &format!("holdfast_backup_{name}_bytes"), &series).await;
        assert_eq!(counted, sum as f64, "{name}");
    }
    let call = |method: &str, code: &str| {
        format!("holdfast_grpc_requests_total{{method=\"{method}\",code=\"{code}\"}}")
    };
    assert_eq!(value(&fixture, "holdfast_grpc_requests", &call("Backup/Commit", "OK")).await, 1.0);
    assert_eq!(value(&fixture, "holdfast_grpc_requests", &call("Restore/ReadDisk", "NOT_FOUND")).await, 1.0);
    let restores = |outcome: &str| format!("holdfast_restores_total{{outcome=\"{outcome}\"}}");
    assert_eq!(value(&fixture, "holdfast_restores", &restores("done")).await, 1.0);
    assert_eq!(value(&fixture, "holdfast_restores", &restores("failed")).await, 1.0);

    admin.record_verification("", &commit.backup_id, "").await.unwrap();
    admin.record_verification("", &commit.backup_id, "damaged").await.unwrap();
    for outcome in ["sound", "damaged"] {
        let series = format!("holdfast_verifications_total{{outcome=\"{outcome}\"}}");
        assert_eq!(value(&fixture, "holdfast_verifications", &series).await, 1.0);
    }

    let families = scrape(&fixture).await;
    let one = |name: &str| families[name].samples[name];
    let stats = fixture.server.app().engine.stats().unwrap();
    assert_eq!(one("holdfast_index_entries"), stats.index.entries as f64);
    assert_eq!(one("holdfast_volume_size_bytes"), stats.space.unwrap().total_bytes as f64);
    assert_eq!(one("holdfast_read_only"), 0.0);
    let recorded = |what: &str| {
        let name = format!("holdfast_recorded_{what}");
        families[&name].samples[&format!("{name}{job}")]
    };
    let rows = admin.report("").await.unwrap();
    assert_eq!(recorded("wire_bytes"), rows.iter().map(|row| row.wire_bytes).sum::<u64>() as f64);
    assert_eq!(recorded("meta_bytes"), rows.iter().map(|row| row.meta_bytes).sum::<u64>() as f64);
    assert_eq!(recorded("runs"), 2.0, "the one under way is not on record yet");
    let disks = |outcome: &str| {
        let series = format!(
            "holdfast_recorded_disks{{namespace=\"default\",backup_job=\"nightly\",outcome=\"{outcome}\"}}"
        );
        families["holdfast_recorded_disks"].samples[&series]
    };
    assert_eq!((disks("done"), disks("failed")), (1.0, 1.0));
    let runs = |outcome: &str| {
        let series = format!("holdfast_runs_last_day{{outcome=\"{outcome}\"}}");
        families["holdfast_runs_last_day"].samples[&series]
    };
    assert_eq!((runs("done"), runs("partly"), runs("failed")), (1.0, 0.0, 1.0));
    let namespace = |name: &str| families[name].samples[&format!("{name}{{namespace=\"default\"}}")];
    assert_eq!(namespace("holdfast_restore_points"), 1.0);
    assert_eq!(namespace("holdfast_protected_bytes"), 0.0, "the disk is all zeros");
    assert_eq!(families["holdfast_protected_bytes"].samples.len(), 1, "there is one namespace");
    let containers = fixture.catalog().container_totals(None).unwrap();
    let stored = containers.iter().map(|totals| totals.stored_bytes).sum::<u64>();
    assert_eq!(namespace("holdfast_stored_bytes"), stored as f64);
    let parts = &families["holdfast_repository_bytes"].samples;
    let part = |part: &str| parts[&format!("holdfast_repository_bytes{{part=\"{part}\"}}")];
    assert_eq!(part("data") + part("recipe"), stored as f64);
    assert!(part("catalog") > 0.0);
    let age = namespace("holdfast_newest_restore_point_age_seconds");
    assert!((0.0..3600.0).contains(&age), "{age}");
    assert!(one("process_resident_memory_bytes") > 1e6);
    let received = "holdfast_network_received_bytes_total{listener=\"grpc\"}";
    assert!(families["holdfast_network_received_bytes"].samples[received] > 1000.0);
    let requests = "holdfast_http_requests_total{method=\"GET\",route=\"/metrics\",code=\"200\"}";
    assert!(families["holdfast_http_requests"].samples[requests] > 5.0);
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
