//! Owners of VMs and of runs, and digests that proved false.

use holdfast_proto::Fingerprint;
use holdfast_types::clock::Clock as _;
use holdfast_types::ids::VmId;
use ulid::Ulid;

use super::cases;
use super::fixture::Fixture;
use crate::{CatalogError, FalseDigest, PageRequest, RowStatus};

cases![
    the_first_commit_makes_a_vm_its_owners,
    a_failed_attempt_makes_a_vm_no_ones,
    an_operator_changes_the_owner,
    a_run_is_joined_by_its_owner_only,
    false_digests_are_kept_by_node_and_namespace,
];

fn owner_of(f: &Fixture, vm: &str) -> Option<String> {
    f.vm_owner(f.default.id, vm).unwrap().unwrap().owner
}

fn the_first_commit_makes_a_vm_its_owners(f: &Fixture) {
    assert_eq!(f.vm_owner(f.default.id, "web").unwrap(), None);
    let mut first = f.commit("web", "nightly");
    first.attempt.vm_owner = "cluster".into();
    f.commit_backup(&first).unwrap();
    assert_eq!(owner_of(f, "web").as_deref(), Some("cluster"));
    assert_eq!(f.backup(first.backup).unwrap().unwrap().owner, "cluster");
    assert_eq!(f.list_vms(None, PageRequest::FIRST).unwrap().items[0].owner.as_deref(), Some("cluster"));

    let mut intruder = f.commit("web", "nightly");
    intruder.attempt.vm_owner = "intruder".into();
    let error = f.commit_backup(&intruder).unwrap_err();
    assert!(matches!(&error, CatalogError::NotOwner { vm } if vm == "web"), "{error}");
    assert_eq!(f.backup(intruder.backup).unwrap(), None, "a refused commit leaves nothing");
    assert_eq!(owner_of(f, "web").as_deref(), Some("cluster"));
    // A VM of the same name in another namespace is another VM.
    let lab = f.ensure_namespace("lab").unwrap();
    super::backups::move_to(&mut intruder, lab.id, "lab");
    f.commit_backup(&intruder).unwrap();
    assert_eq!(f.vm_owner(lab.id, "web").unwrap().unwrap().owner.as_deref(), Some("intruder"));
}

fn a_failed_attempt_makes_a_vm_no_ones(f: &Fixture) {
    f.record_failed_run(&f.failed("web", "nightly", RowStatus::Failed)).unwrap();
    assert_eq!(owner_of(f, "web"), None);
    f.committed("web", "nightly");
    assert_eq!(owner_of(f, "web").as_deref(), Some("default"));
}

fn an_operator_changes_the_owner(f: &Fixture) {
    let first = f.committed("web", "nightly");
    let vm = f.vm_owner(f.default.id, "web").unwrap().unwrap().id;
    assert_eq!(f.set_vm_owner(vm, "cluster", "op").unwrap().as_deref(), Some("default"));
    assert_eq!(owner_of(f, "web").as_deref(), Some("cluster"));
    assert_eq!(f.backup(first.backup).unwrap().unwrap().owner, "default", "what was committed is as it was");
    let newest = f.list_audit(PageRequest::FIRST).unwrap().items.remove(0).entry;
    assert_eq!(
        (newest.who.as_str(), newest.action.as_str(), newest.object),
        ("op", "vm.owner", vm.to_string())
    );
    for word in ["web", "\"default\"", "\"cluster\""] {
        assert!(newest.detail.contains(word), "{}", newest.detail);
    }
    assert!(matches!(f.commit_backup(&f.commit("web", "nightly")), Err(CatalogError::NotOwner { .. })));
    assert!(matches!(f.set_vm_owner(vm, "a\nb", "op"), Err(CatalogError::Invalid { .. })));
    let gone = VmId(Ulid(3));
    assert!(matches!(f.set_vm_owner(gone, "x", "op"), Err(CatalogError::NotFound { what: "VM", .. })));
}

fn a_run_is_joined_by_its_owner_only(f: &Fixture) {
    let first = f.committed("web", "nightly");
    let run = f.run(first.attempt.run).unwrap().unwrap();
    assert_eq!(run.owner, "default");
    let mut other = f.failed("db", "nightly", RowStatus::Failed);
    other.attempt.run = run.id;
    other.details[0].run = run.id.to_string();
    other.containers[0].run = Some(run.id);
    let mut foreign = other.clone();
    foreign.attempt.owner = "intruder".into();
    assert!(matches!(f.record_failed_run(&foreign), Err(CatalogError::Invalid { .. })));
    f.record_failed_run(&other).unwrap();
}

fn false_digests_are_kept_by_node_and_namespace(f: &Fixture) {
    let lab = f.ensure_namespace("lab").unwrap();
    let [node, digest, other] = [1, 2, 3].map(|byte| Fingerprint::from_bytes([byte; 32]));
    let claims = [(node, digest), (node, other), (other, digest)];
    assert_eq!(f.are_false(f.default.id, &claims).unwrap(), [false; 3]);
    let found = FalseDigest { namespace: f.default.id, node, digest, found_ms: f.clock.now_ms() };
    f.add_false_digests(&[found, found]).unwrap();
    f.add_false_digests(&[FalseDigest { found_ms: 0, ..found }]).unwrap();
    assert_eq!(f.are_false(f.default.id, &claims).unwrap(), [true, false, false]);
    assert_eq!(f.are_false(lab.id, &claims).unwrap(), [false; 3]);
}
