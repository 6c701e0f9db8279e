//! Starts a repository after a crash, holds it against what was promised, and goes on with it.

use std::collections::HashSet;

use holdfast_engine::catalog::{BackupFilter, PageRequest};
use holdfast_engine::{CheckOptions, NoProgress};

use crate::agent;
use crate::facts::{Disks, Facts};
use crate::life::{Actor, noise};
use crate::random::Random;

/// Starts, compares, backs up and restores. The actor's facts then hold what this life was promised.
pub(crate) fn verify(actor: &mut Actor<'_>, known: &Facts, random: &mut Random) -> Result<(), String> {
    actor.try_start().map_err(|error| format!("the start failed: {error}"))?;
    let engine = actor.engine();
    if engine.opened().damaged_containers > 0 {
        return Err(format!("the start found damage: {:?}", engine.opened()));
    }
    let damaged = engine.catalog().damaged().map_err(|error| error.to_string())?;
    if !damaged.is_empty() {
        return Err(format!("the catalog knows of damage: {damaged:?}"));
    }
    if let Some((repository, _)) = known.repository
        && repository != engine.repository_id()
    {
        return Err(format!("the repository was {repository} and is {}", engine.repository_id()));
    }
    let unfinished = actor.unfinished();
    if !unfinished.is_empty() {
        return Err(format!("the start left unfinished blobs: {unfinished:?}"));
    }
    points(actor, known)?;
    tokens(actor, known)?;
    if random.one_in(8) {
        sound(actor)?;
    }
    go_on(actor, known)?;
    if random.one_in(2) {
        actor.stop();
    }
    Ok(())
}

/// Every acknowledged restore point is listed, and every listed one holds what its agent sent.
fn points(actor: &Actor<'_>, known: &Facts) -> Result<(), String> {
    let engine = actor.engine();
    let all = PageRequest { size: 1000, token: "" };
    let listed = engine.catalog().list_backups(&BackupFilter::default(), all);
    let listed = listed.map_err(|error| format!("cannot list restore points: {error}"))?.items;
    let ids: HashSet<String> = listed.iter().map(|backup| backup.id.to_string()).collect();
    if let Some(lost) = known.points.iter().find(|point| !ids.contains(&point.id)) {
        return Err(format!("the acknowledged restore point {} of {:?} is not listed", lost.id, lost.vm));
    }
    let offered = known.offered();
    for backup in &listed {
        for disk in &backup.disks {
            let what = format!("disk {:?} of restore point {} of {:?}", disk.name, backup.id, backup.vm);
            let bytes = agent::restore(engine, &backup.id.to_string(), &disk.name)
                .map_err(|error| format!("{what} cannot be restored: {error}"))?;
            let wanted = offered.get(&(backup.vm.as_str(), disk.name.as_str()));
            if !wanted.is_some_and(|wanted| wanted.contains(bytes.as_slice())) {
                return Err(format!("{what} is not what any agent sent"));
            }
        }
    }
    Ok(())
}

fn tokens(actor: &Actor<'_>, known: &Facts) -> Result<(), String> {
    for token in &known.tokens {
        let found = actor.engine().catalog().token(token.id).map_err(|error| error.to_string())?;
        let Some((record, hash)) = found else { return Err(format!("token {} is gone", token.id)) };
        if hash != token.hash {
            return Err(format!("token {} has another secret", token.id));
        }
        if token.revoked.is_some() && record.revoked_ms.is_none() {
            return Err(format!("token {} was revoked and is not", token.id));
        }
        if token.revoking.is_none() && record.revoked_ms.is_some() {
            return Err(format!("token {} was never revoked and is", token.id));
        }
    }
    Ok(())
}

fn sound(actor: &Actor<'_>) -> Result<(), String> {
    let checked = actor.engine().check(CheckOptions { read_data: true }, &NoProgress);
    let report = checked.map_err(|error| format!("the check failed: {error}"))?;
    if report.is_sound() { Ok(()) } else { Err(format!("the check found {:?}", report.problems)) }
}

/// What was sent when it happened is sent again, so that it meets what is left of itself; then something new.
fn go_on(actor: &mut Actor<'_>, known: &Facts) -> Result<(), String> {
    let new: Disks = vec![("root", noise(7777, 40_000))];
    let again = known.offers.last().map(|(_, vm, disks)| (vm.clone(), disks.clone()));
    for (vm, disks) in again.into_iter().chain([("after".to_owned(), new)]) {
        actor.backup(&vm, &disks);
        let id = actor.facts.points.last().map(|point| point.id.clone()).unwrap_or_default();
        for (name, bytes) in &disks {
            let found = agent::restore(actor.engine(), &id, name)
                .map_err(|error| format!("a backup made after the crash cannot be restored: {error}"))?;
            if found != **bytes {
                return Err(format!("a backup of {vm:?} made after the crash is not what was sent"));
            }
        }
    }
    actor.create_token("after");
    Ok(())
}
