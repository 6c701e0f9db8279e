//! Owners of VMs: another owner's token neither writes a VM nor profits from what it claimed.

use std::sync::Arc;

use holdfast_catalog::PageRequest;
use holdfast_proto::{ErrorCode, v1};
use holdfast_types::ids::{SessionId, VmId};
use holdfast_volume::MemoryVolume;
use v1::ingest_request::Kind as Request;

use super::agent::{backup, request, restore, send_disk, start, start_as, starter};
use super::{Bench, namespace, noise};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::ingest::{Committed, Starter};

/// A token of the same namespace, of another owner.
fn intruder() -> Starter {
    Starter { owner: "intruder".into(), ..starter(9) }
}

fn backup_as(engine: &Engine, vm: &str, disk: &[u8], by: Starter) -> Result<Committed, EngineError> {
    let started = start_as(engine, request(vm, &[("root", disk)]), by)?;
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0)?;
    send_disk(engine, session, &stream, 0, disk)?;
    engine.commit(session)
}

fn vm_id(engine: &Engine, vm: &str) -> VmId {
    engine.catalog().vm_owner(namespace(engine), vm).unwrap().unwrap().id
}

#[test]
fn another_owners_token_writes_no_backup_of_the_vm() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 5 << 20);
    let honest = backup(&engine, "web", &[("root", &disk)]).unwrap();
    let evil = noise(2, 5 << 20);
    let error = backup_as(&engine, "web", &evil, intruder()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Forbidden, "{error}");
    for words in ["\"web\"", "another name", "operator", "vm owner"] {
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    // A right to end other tokens' sessions does not help.
    let over = v1::StartRequest { take_over: true, ..request("web", &[("root", &disk)]) };
    start(&engine, request("web", &[("root", &disk)])).unwrap();
    let error = start_as(&engine, over, Starter { may_take_over: true, ..intruder() }).unwrap_err();
    assert!(matches!(error, EngineError::NotOwner { .. }), "{error}");
    assert_eq!(engine.live_sessions().len(), 1, "the session of the owner's token goes on");
    assert!(restore(&engine, &honest.backup_id, "root").unwrap() == disk);
    backup_as(&engine, "intruders-own", &evil, intruder()).expect("a name that is no one's");
}

#[test]
fn the_tokens_of_one_owner_go_on_with_a_vm() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 5 << 20);
    backup_as(&engine, "web", &disk, starter(1)).unwrap();
    let migrated = backup_as(&engine, "web", &disk, starter(2)).unwrap();
    assert_eq!(migrated.details[0].unchanged_bytes, 5 << 20);
}

#[test]
fn a_token_for_every_owner_leaves_the_vm_its_owners() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 100_000);
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    let operator = Starter { is_for_every_owner: true, ..intruder() };
    backup_as(&engine, "web", &disk, operator).unwrap();
    let owner = engine.catalog().vm_owner(namespace(&engine), "web").unwrap().unwrap().owner;
    assert_eq!(owner.as_deref(), Some("default"));
    let after = backup(&engine, "web", &[("root", &disk)]).unwrap();
    assert_eq!(after.details[0].unchanged_bytes, 100_000);
}

#[test]
fn a_new_owner_relies_on_nothing_that_the_old_one_claimed() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 5 << 20);
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    engine.catalog().set_vm_owner(vm_id(&engine, "web"), "intruder", "op").unwrap();
    assert!(backup(&engine, "web", &[("root", &disk)]).is_err(), "the old owner's tokens are refused now");

    let started = start_as(&engine, request("web", &[("root", &disk)]), intruder()).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    assert_eq!(engine.parent_digests(session, 0, 0).unwrap(), None, "no digest of the old owner is told");
    let stream = engine.open_stream(session, 0).unwrap();
    let range = v1::ExtentRange { first: 0, count: 1 };
    let unchanged = Request::Extents(v1::Extents { unchanged: vec![range], ..v1::Extents::default() });
    let error = stream.handle(unchanged, 1).unwrap_err();
    assert!(error.to_string().contains("earlier owner"), "{error}");
    engine.abort(session, "test").unwrap();

    let first = backup_as(&engine, "web", &disk, intruder()).unwrap();
    assert_eq!((first.details[0].unchanged_bytes, first.details[0].new_bytes), (0, 0), "all read, none sent");
    let second = backup_as(&engine, "web", &disk, intruder()).unwrap();
    assert_eq!(second.details[0].unchanged_bytes, 5 << 20, "its own claims are offered to it");
}

#[test]
fn a_change_of_owner_during_a_backup_refuses_its_commit() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    let disk = noise(1, 100_000);
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    for by in [starter(1), Starter { is_for_every_owner: true, ..starter(1) }] {
        let started = start_as(&engine, request("web", &[("root", &disk)]), by).unwrap();
        let session: SessionId = started.session_id.parse().unwrap();
        let stream = engine.open_stream(session, 0).unwrap();
        send_disk(&engine, session, &stream, 0, &disk).unwrap();
        engine.catalog().set_vm_owner(vm_id(&engine, "web"), "other", "op").unwrap();
        let error = engine.commit(session).unwrap_err();
        assert!(matches!(&error, EngineError::NotOwner { vm } if vm == "web"), "{error}");
        engine.abort(session, "test").unwrap();
        engine.catalog().set_vm_owner(vm_id(&engine, "web"), "default", "op").unwrap();
    }
    // Nothing of it is left on the volume that a start would make a backup of.
    drop(engine);
    let engine = bench.open(Arc::new(volume));
    let backups = engine.catalog().list_vms(None, PageRequest::FIRST).unwrap().items[0].backups;
    assert_eq!(backups, 1);
}

#[test]
fn another_owners_run_is_not_joined() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 100_000);
    let live = start(&engine, request("web", &[("root", &disk)])).unwrap();
    let join = |run_id: &str| v1::StartRequest { run_id: run_id.into(), ..request("db", &[("root", &disk)]) };
    let refused = |run: &str| {
        let error = start_as(&engine, join(run), intruder()).unwrap_err();
        assert!(error.to_string().contains("cannot join"), "{error}");
    };
    refused(&live.run_id);
    engine.abort(live.session_id.parse().unwrap(), "test").unwrap();
    refused(&live.run_id);
    start_as(&engine, join(&live.run_id), starter(2)).expect("a token of the same owner");
}
