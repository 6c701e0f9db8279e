use holdfast_engine::catalog::PageRequest;
use holdfast_engine::catalog::token::PresentedToken;
use holdfast_engine::clock::ManualClock;

use super::*;
use crate::repository::catalog_path;

const NOW_MS: i64 = 1_800_000_000_000;

fn catalog() -> (tempfile::TempDir, Catalog, Arc<ManualClock>) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let catalog = Catalog::create(&catalog_path(folder.path()), clock.clone()).unwrap();
    (folder, catalog, clock)
}

fn args(name: &str, role: Role, namespaces: &[&str]) -> CreateArgs {
    CreateArgs {
        folder: DataFolder { config: None, data_dir: None },
        name: name.to_owned(),
        role: Some(role),
        join: false,
        advertise: Vec::new(),
        owner: None,
        vms: Vec::new(),
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        expires: None,
        json: false,
    }
}

#[test]
fn created_tokens_are_valid_until_revoked_by_name_or_id() {
    let (_folder, catalog, clock) = catalog();
    let (text, record) = create(&catalog, &*clock, &args("hv1", Role::Backup, &["berlin"])).unwrap();
    let presented: PresentedToken = text.as_str().parse().unwrap();
    let (kept, hash) = catalog.token(presented.id()).unwrap().unwrap();
    assert!(presented.matches(&hash) && kept.is_usable(NOW_MS));
    assert_eq!(namespace_names(&catalog, &record).unwrap(), ["berlin"], "the namespace was created");

    revoke(&catalog, NOW_MS, "hv1").unwrap();
    assert!(!catalog.token(presented.id()).unwrap().unwrap().0.is_usable(NOW_MS));
    let (_, record) = create(&catalog, &*clock, &args("hv1", Role::Backup, &[])).unwrap();
    revoke(&catalog, NOW_MS, &record.id.to_string()).unwrap();
    for absent in ["hv1", "hv2"] {
        let failure = revoke(&catalog, NOW_MS, absent).unwrap_err();
        assert!(format!("{failure:?}").contains(absent), "{failure:?}");
    }

    let audit = catalog.list_audit(PageRequest::FIRST).unwrap().items;
    let count = |action: &str| audit.iter().filter(|record| record.entry.action == action).count();
    assert_eq!((count("token.create"), count("token.revoke")), (2, 2));
    assert!(!format!("{audit:?}").contains(text.as_str()), "the secret is not logged");
}

#[test]
fn lists_have_state_scope_and_expiry() {
    let (_folder, catalog, clock) = catalog();
    let mut short = args("short", Role::Restore, &["a", "b"]);
    short.expires = Some(Duration::from_secs(90 * 86_400));
    let (text, _) = create(&catalog, &*clock, &short).unwrap();
    // Lists are oldest first.
    clock.advance_ms(1);
    create(&catalog, &*clock, &args("boss", Role::Admin, &[])).unwrap();

    let later_ms = NOW_MS + 91 * 86_400_000;
    let listed: Value = serde_json::from_str(&list(&catalog, later_ms, true).unwrap()).unwrap();
    assert_eq!(listed[0]["name"], "short");
    assert_eq!(listed[0]["state"], "expired");
    assert_eq!(listed[0]["namespaces"], json!(["a", "b"]));
    assert_eq!(listed[0]["expires"], "2027-04-15T08:00:00Z");
    assert_eq!(listed[1]["role"], "admin");
    assert_eq!(listed[1]["last_used"], Value::Null);
    let table = list(&catalog, NOW_MS, false).unwrap();
    assert!(table.contains("short") && table.contains("a, b") && table.contains("valid"), "{table}");
    assert!(!table.contains(text.as_str()));
}

#[test]
fn invalid_tokens_are_refused_before_anything_is_created() {
    let (_folder, catalog, clock) = catalog();
    let namespaces = catalog.namespaces().unwrap().len();
    for bad in [
        args("", Role::Backup, &["new"]),
        args("a\tb", Role::Backup, &["new"]),
        args("boss", Role::Admin, &["new"]),
        args("ok", Role::Backup, &["new", " "]),
        CreateArgs { expires: Some(Duration::MAX), ..args("ok", Role::Backup, &["new"]) },
    ] {
        assert!(create(&catalog, &*clock, &bad).is_err(), "{bad:?}");
    }
    assert_eq!(catalog.namespaces().unwrap().len(), namespaces);
    assert!(catalog.list_tokens().unwrap().is_empty());
    create(&catalog, &*clock, &args("twice", Role::Backup, &[])).unwrap();
    assert!(create(&catalog, &*clock, &args("twice", Role::Backup, &[])).is_err());
}
