//! Makes each rule of `deploy/alerts.yml` fire, and fall silent, with Prometheus' own program.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use holdfast_tests::tools;

/// A rule: series in the syntax of `promtool`, one value each interval (at most five minutes: older values expire);
/// when it fires, and when it is silent.
struct Case {
    alert: &'static str,
    interval: &'static str,
    series: &'static [(&'static str, &'static str)],
    fires: &'static str,
    silent: &'static [&'static str],
}

const fn case(
    alert: &'static str,
    interval: &'static str,
    series: &'static [(&'static str, &'static str)],
    fires: &'static str,
    silent: &'static [&'static str],
) -> Case {
    Case { alert, interval, series, fires, silent }
}

/// Bad from the third value on, and good again from the thirteenth on.
const SPELL: &str = "0x1 1x9 0x60";
/// The same, for longer.
const LONG: &str = "0x3 1x19 0x120";

const CASES: &[Case] = &[
    case(
        "HoldfastDown",
        "1m",
        &[(r#"up{job="holdfast",instance="a"}"#, "1x1 0x9 1x60")],
        "8m",
        &["1m", "30m"],
    ),
    case("HoldfastReadOnly", "1m", &[("holdfast_read_only", LONG)], "5m", &["1m", "30m"]),
    case("HoldfastNotReady", "1m", &[(r#"holdfast_not_ready{reason="full"}"#, SPELL)], "9m", &["4m", "30m"]),
    case("HoldfastDataLost", "1m", &[("holdfast_damaged_restore_points", LONG)], "5m", &["1m", "30m"]),
    case("HoldfastDamage", "1m", &[("holdfast_open_damage", SPELL)], "9m", &["4m", "30m"]),
    case(
        "HoldfastCopiesLate",
        "5m",
        &[("holdfast_bucket_lag_seconds", "60x11 30000x19 60x120")],
        "100m",
        &["20m", "200m"],
    ),
    case("HoldfastCopiesFailing", "5m", &[("holdfast_bucket_failing", LONG)], "100m", &["10m", "200m"]),
    // The lag of copies is unknown until everything was copied once.
    case(
        "HoldfastFirstCopyLate",
        "5m",
        &[("holdfast_bucket_waiting_blobs", "9x3000"), ("holdfast_bucket_lag_seconds", "_x1440 60x1500")],
        "96h",
        &["48h", "200h"],
    ),
    case("HoldfastBucketFlawed", "5m", &[("holdfast_bucket_flawed_objects", LONG)], "60m", &["10m", "200m"]),
    case(
        "HoldfastRetentionFailing",
        "5m",
        &[("holdfast_bucket_retention_failing", LONG)],
        "100m",
        &["30m", "200m"],
    ),
    case(
        "HoldfastScrubLate",
        "5m",
        &[("holdfast_scrub_pass_age_seconds", "60x143 7000000x719 60x4000")],
        "54h",
        &["6h", "120h"],
    ),
    case(
        "HoldfastScrubUnclear",
        "5m",
        &[(r#"holdfast_scrub_found_total{what="unclear"}"#, "0x47 1x1000")],
        "10h",
        &["2h", "60h"],
    ),
    case(
        "HoldfastAgentsProofLate",
        "5m",
        &[("holdfast_agents_proof_age_seconds", "60x143 1300000x719 60x4000")],
        "54h",
        &["6h", "120h"],
    ),
    case(
        "HoldfastVerificationFailed",
        "5m",
        &[(r#"holdfast_verifications_total{outcome="damaged"}"#, "0x47 1x1000")],
        "10h",
        &["2h", "60h"],
    ),
    case(
        "HoldfastFalseDigest",
        "5m",
        &[(r#"holdfast_extent_digests_total{outcome="refused"}"#, "0x47 1x1000")],
        "10h",
        &["2h", "60h"],
    ),
    case(
        "HoldfastNoRecentRestorePoint",
        "5m",
        &[(r#"holdfast_newest_restore_point_age_seconds{namespace="n"}"#, "60x3 100000x19 60x120")],
        "100m",
        &["10m", "200m"],
    ),
    case(
        "HoldfastStaleVms",
        "5m",
        &[(r#"holdfast_stale_vms{namespace="n"}"#, LONG)],
        "100m",
        &["30m", "200m"],
    ),
    case(
        "HoldfastVolumeNearlyFull",
        "5m",
        &[
            ("holdfast_volume_free_bytes", "90x3 12x19 90x120"),
            ("holdfast_volume_reserve_bytes", "10x200"),
            ("holdfast_volume_size_bytes", "100x200"),
        ],
        "60m",
        &["10m", "200m"],
    ),
    case(
        "HoldfastVolumeFullSoon",
        "5m",
        &[
            ("holdfast_volume_free_bytes", "1000-0.41667x1080 600x2400"),
            ("holdfast_volume_reserve_bytes", "10x4000"),
        ],
        "80h",
        &["4h", "200h"],
    ),
    case(
        "HoldfastRunsFailing",
        "5m",
        &[(r#"holdfast_job_failing_vms{namespace="n",backup_job="j"}"#, LONG)],
        "90m",
        &["20m", "200m"],
    ),
    case(
        "HoldfastDedupesWorse",
        "1m",
        &[(r#"holdfast_job_dedupe_regression{namespace="n",backup_job="j"}"#, "1x3 6x19 1x120")],
        "10m",
        &["1m", "60m"],
    ),
    case(
        "HoldfastScheduleSkipped",
        "5m",
        &[(r#"holdfast_schedules_skipped_total{kind="reclaim"}"#, "0x47 1x1000")],
        "10h",
        &["2h", "60h"],
    ),
    case(
        "HoldfastAgentLate",
        "5m",
        &[("holdfast_agent_next_run_overdue_seconds", "0x11 9000x19 0x120")],
        "100m",
        &["20m", "200m"],
    ),
    case(
        "HoldfastManyRefusals",
        "1m",
        &[(r#"holdfast_auth_failures_total{reason="unauthenticated",protocol="grpc"}"#, "0+120x60 7200x120")],
        "40m",
        &["5m", "100m"],
    ),
    case(
        "HoldfastServerErrors",
        "1m",
        &[(r#"holdfast_grpc_requests_total{method="m",code="INTERNAL"}"#, "0+1x60 60x120")],
        "40m",
        &["5m", "100m"],
    ),
];

/// The alerts of the file, in its order.
fn alerts(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

#[test]
fn every_rule_fires_and_falls_silent_again() {
    let Some(promtool) = tools::find("promtool") else { return };
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/alerts.yml");
    let text = fs::read_to_string(&rules).unwrap();
    let tried: Vec<&str> = CASES.iter().map(|case| case.alert).collect();
    assert_eq!(alerts(&text), tried, "each rule, in the order of the file");

    for interval in ["1m", "5m"] {
        let mut file =
            format!("rule_files: [{}]\nevaluation_interval: {interval}\ntests:\n", rules.display());
        CASES.iter().filter(|case| case.interval == interval).for_each(|case| write(&mut file, case));
        let folder = tempfile::tempdir().unwrap();
        let tests = folder.path().join("alerts_test.yml");
        fs::write(&tests, &file).unwrap();
        let (good, said) = tools::run(&promtool, &["test", "rules", &tests.display().to_string()]);
        assert!(good, "{said}");
    }
}

/// Writes a case in the format of `promtool`.
fn write(file: &mut String, case: &Case) {
    let Case { alert, interval, series, fires, silent } = case;
    let _ = writeln!(file, "  - interval: {interval}\n    input_series:");
    for (series, values) in *series {
        let _ = writeln!(file, "      - series: '{series}'\n        values: '{values}'");
    }
    let _ = writeln!(file, "    promql_expr_test:");
    for (at, is_firing) in std::iter::once((fires, true)).chain(silent.iter().map(|at| (at, false))) {
        let expr = format!("count by (alertname) (ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})");
        let _ = writeln!(file, "      - expr: '{expr}'\n        eval_time: {at}");
        if is_firing {
            let _ =
                writeln!(file, "        exp_samples: [{{labels: '{{alertname=\"{alert}\"}}', value: 1}}]");
        }
    }
}
