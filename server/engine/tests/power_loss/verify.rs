//! Starts a repository after a crash, holds it against what was promised, and goes on with it.

use std::collections::HashSet;

use holdfast_engine::catalog::{BackupFilter, PageRequest};
use holdfast_engine::{CheckOptions, Engine, NoProgress, count_containers};

use crate::agent;
use crate::facts::{Disks, Facts, Point};
use crate::life::{Actor, noise};
use crate::random::Random;

/// Starts, compares, backs up and restores. The actor's facts then hold what this life was promised.
pub(crate) fn verify(actor: &mut Actor<'_>, known: &Facts, random: &mut Random) -> Result<(), String> {
    actor.try_start().map_err(|error| format!("the start failed: {error}"))?;
    let engine = actor.engine();
    if known.spoiling.is_none() {
        no_damage(engine)?;
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
    if known.spoiling.is_some() && random.one_in(2) {
        // Parity makes it again at once, or whenever it is read.
        actor.scrub();
        actor.protect();
    }
    points(actor, known)?;
    kept(actor, known)?;
    tokens(actor, known)?;
    if known.spoiling.is_none() && random.one_in(8) {
        sound(actor)?;
    }
    go_on(actor, known)?;
    if random.one_in(3) {
        space_comes_back(actor, known)?;
    }
    if random.one_in(2) {
        actor.stop();
    }
    Ok(())
}

fn no_damage(engine: &Engine) -> Result<(), String> {
    if engine.opened().damaged_containers > 0 {
        return Err(format!("the start found damage: {:?}", engine.opened()));
    }
    let damaged = engine.catalog().damaged().map_err(|error| error.to_string())?;
    if damaged.is_empty() { Ok(()) } else { Err(format!("the catalog knows of damage: {damaged:?}")) }
}

/// Every acknowledged restore point is listed unless it was deleted, none that was deleted is, and every listed one holds
/// what its agent sent.
fn points(actor: &Actor<'_>, known: &Facts) -> Result<(), String> {
    let engine = actor.engine();
    let all = PageRequest { size: 1000, token: "" };
    let listed = engine.catalog().list_backups(&BackupFilter::default(), all);
    let listed = listed.map_err(|error| format!("cannot list restore points: {error}"))?.items;
    let ids: HashSet<String> = listed.iter().map(|backup| backup.id.to_string()).collect();
    let deleted = known.deleted();
    let lost = |point: &&Point| !ids.contains(&point.id) && !deleted.contains_key(&point.id);
    if let Some(lost) = known.points.iter().find(lost) {
        return Err(format!("the acknowledged restore point {} of {:?} is not listed", lost.id, lost.vm));
    }
    if let Some((back, _)) = deleted.iter().find(|(id, done)| **done && ids.contains(*id)) {
        return Err(format!("the deleted restore point {back} is listed again"));
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

/// No lock and no hold is lost.
fn kept(actor: &Actor<'_>, known: &Facts) -> Result<(), String> {
    for one in &known.kept {
        if one.releasing.is_some() {
            continue;
        }
        let row = actor.engine().catalog().backup(one.id).map_err(|error| error.to_string())?;
        let Some(row) = row else { return Err(format!("{} is locked or held, and is gone", one.id)) };
        let holds = match one.until_ms {
            Some(until_ms) => row.lock.until_ms >= Some(until_ms),
            None => row.lock.hold.is_some(),
        };
        if !holds {
            return Err(format!("{} was locked or held: {one:?}, and is not: {:?}", one.id, row.lock));
        }
        if actor.engine().delete_backups(&[one.id], "verify", "it is locked").is_ok() {
            return Err(format!("{} was deleted, and is locked or held", one.id));
        }
    }
    Ok(())
}

/// Whatever can be deleted is deleted; what then is left is what the rest needs.
fn space_comes_back(actor: &mut Actor<'_>, known: &Facts) -> Result<(), String> {
    // (S7) A container that the index covers and the catalog does not know gets its row only now: of a backup whose point was
    // durable when its process was killed.
    actor.audit();
    let all = PageRequest { size: 1000, token: "" };
    let listed = actor.engine().catalog().list_backups(&BackupFilter::default(), all);
    let listed = listed.map_err(|error| format!("cannot list restore points: {error}"))?.items;
    for row in &listed {
        let is_kept = row.lock.hold.is_some() || row.lock.until_ms.is_some();
        if !is_kept {
            actor.delete(row.id).map_err(|error| format!("{} cannot be deleted: {error}", row.id))?;
        }
    }
    if known.spoiling.is_some() {
        actor.scrub();
    }
    for _ in 0..2 {
        actor.reclaim();
    }
    let left = actor.engine().catalog().list_backups(&BackupFilter::default(), all);
    let left = left.map_err(|error| format!("cannot list restore points: {error}"))?.items;
    let files = count_containers(&actor.volume()).map_err(|error| error.to_string())?;
    let rows = actor.engine().catalog().all_containers().count();
    // Each of them may need a few containers of which little is dead.
    if files > 4 * left.len() || rows != files {
        return Err(format!("{files} containers and {rows} rows are left of {} restore points", left.len()));
    }
    points(actor, &known.clone().and(actor.facts.clone()))
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
