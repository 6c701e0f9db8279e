//! Options, and what they make of a quota.

use clap::Parser;
use holdfast_engine::catalog::{DEFAULT_NAMESPACE, PageRequest};
use holdfast_engine::clock::ManualClock;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: QuotaArgs,
}

fn args(options: &[&str]) -> QuotaArgs {
    let line = ["quota", DEFAULT_NAMESPACE].iter().chain(options);
    Line::try_parse_from(line).unwrap().args
}

#[test]
fn options_change_what_they_name_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_763_700_000_000));
    let catalog = Catalog::create(&dir.path().join("catalog.db"), clock).unwrap();
    let set = |options: &[&str]| quota(&catalog, &args(options)).unwrap().quota;
    assert_eq!(set(&[]), Quota::default());
    assert!(catalog.list_audit(PageRequest::FIRST).unwrap().items.is_empty(), "showing changes nothing");
    let all =
        set(&["--stored", "2TB", "--protected", "1GiB", "--restore-points", "5", "--sessions-per-day", "9"]);
    let expected = Quota {
        stored_bytes: Some(2_000_000_000_000),
        protected_bytes: Some(1 << 30),
        restore_points: Some(5),
        sessions_per_day: Some(9),
    };
    assert_eq!(all, expected);
    assert_eq!(set(&[]), expected);
    assert_eq!(set(&["--protected", "none"]), Quota { protected_bytes: None, ..expected });
    assert_eq!(set(&["--none", "--stored", "7"]), Quota { stored_bytes: Some(7), ..Quota::default() });
    assert_eq!(set(&["--none"]), Quota::default());
    assert_eq!(catalog.list_audit(PageRequest::FIRST).unwrap().items.len(), 4);
    let unknown = QuotaArgs { name: "lab".into(), ..args(&[]) };
    assert!(quota(&catalog, &unknown).is_err());
    for bad in ["2", "-1", "2XB", "many"] {
        let line = ["quota", "x", "--restore-points", bad, "--stored", bad];
        assert_eq!(Line::try_parse_from(line).is_ok(), bad == "2", "{bad}");
    }
}

#[test]
fn what_is_near_its_limit_is_said() {
    let mut found = NamespaceQuota {
        namespace: holdfast_engine::catalog::NamespaceRecord {
            id: holdfast_engine::ids::NamespaceId::from_bytes([1; 16]),
            name: "lab".into(),
            created_ms: 0,
            key_id: None,
        },
        quota: Quota { stored_bytes: Some(1000), restore_points: Some(10), ..Quota::default() },
        usage: holdfast_engine::catalog::Usage { stored_bytes: 899, restore_points: 8, ..Default::default() },
    };
    assert!(!show(std::slice::from_ref(&found), false).contains("near"));
    found.usage.stored_bytes = 900;
    found.usage.restore_points = 12;
    let text = show(std::slice::from_ref(&found), false);
    assert!(
        text.contains("900 B of 1.0 kB") && text.contains("near the limit of stored bytes, restore points"),
        "{text}"
    );
    let described = describe(&found);
    assert_eq!(described["near"], json!(["stored bytes", "restore points"]));
    assert_eq!(described["quota"]["protected_bytes"], Value::Null);
}
