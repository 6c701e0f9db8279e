//! `holdfast-server key`: what opens an encrypted repository. Works on the volume directly; beside a running server it hands
//! what it made to that (`place`).

mod place;

use std::fs;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use holdfast_engine::EngineError;
use holdfast_engine::clock::{Clock, SystemClock, utc_text};
use holdfast_keys::kit::KitPage;
use holdfast_keys::slots::{NewSlot, SlotId, SlotInfo, SlotKind, SlotSecret};
use holdfast_keys::{DataKeyState, KeyTable, OpenKeys, Owner, Secret, SecretBytes, SystemRandom};
use holdfast_proto::ErrorCode;
use holdfast_sealing::{Inventory, inventory};
use serde_json::{Value, json};

use super::fail::Failure;
use super::namespace::size;
use super::{DataFolder, out};
use crate::control::{self, Progress};
use crate::error::ServiceError;
use crate::repository::encryption::{
    self, KeySource, NO_KIT, PASSPHRASE_MAX_BYTES, at_work, no_key, refused, wants_kit,
};
use crate::repository::{BLOBS, FolderLock, copies_of};
use place::Place;

const EXAMPLES: &str = "\
A repository is encrypted from the first 'holdfast-server serve --encrypt' on. A start opens it with what the settings \
name: key_file (by default repository.key in the data folder), key_passphrase_file or key_command. These commands need \
the same settings, from --config or the environment (HOLDFAST_KEY_FILE and so on). Each key, passphrase and recovery kit \
opens everything, so the weakest counts; when all are lost, all backups are.

Examples:
  holdfast-server key status
  holdfast-server key export-kit > kit.txt      (print it, and delete the file)
  holdfast-server key import --kit kit.txt      (the key file is lost)
  holdfast-server key remove 2                  (a number that 'key status' shows)
  holdfast-server key rotate                    (someone else may know a key)

All but 'key accept-older' work beside a running server, which goes on with the changed keys, and without one. \
More: docs/operations/encryption.md.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum KeyCommand {
    /// Show what opens the repository, which keys it has, and how far a running server is with encrypting anew
    Status(StatusArgs),
    /// Print a recovery kit: one page that opens the repository when everything else is lost
    ///
    /// Print the page, keep it apart from the server, and delete the file, if you made one.
    ExportKit(FolderArgs),
    /// Add a passphrase that opens the repository
    ///
    /// The server uses the passphrase once key_passphrase_file names a file with it, from its next start on.
    AddPassphrase(PassphraseArgs),
    /// Make what the settings name open the repository, with the help of a recovery kit
    ///
    /// For when the key file is lost, or another source of the key is to be used. A key file that is not there is made.
    /// When the catalog is lost, too: 'holdfast-server recover --kit'.
    Import(ImportArgs),
    /// Stop a key file, passphrase, command or kit from opening the repository
    ///
    /// Copies of the volume made before still open with it.
    Remove(RemoveArgs),
    /// Go on with a table of keys that is older than the one used last
    ///
    /// When the whole volume was put back from an older copy on purpose; the server must be stopped. Keys, passphrases and kits that were removed since
    /// that copy open the repository again.
    AcceptOlder(FolderArgs),
    /// Make a new repository key, and with --data-keys new data keys
    ///
    /// Only what the settings name opens the new repository key; recovery kits and everything else no longer open it, and
    /// are listed: export a new kit. With --data-keys new data gets new keys, and what is there is encrypted anew by the
    /// running server, beside backups and restores, which then drops the old ones: 'key status' says how far it is.
    Rotate(RotateArgs),
}

#[derive(Debug, Args)]
pub(super) struct FolderArgs {
    #[command(flatten)]
    folder: DataFolder,
}

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct PassphraseArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// File with the passphrase [default: it is read from standard input, one line]
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// A note for people: whose it is, or where it is kept
    #[arg(long, default_value = "passphrase")]
    label: String,
}

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// The page of the kit, or just its words
    #[arg(long, value_name = "FILE")]
    kit: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct RemoveArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Its number, as 'key status' shows it
    slot: u32,
}

#[derive(Debug, Args)]
pub(super) struct RotateArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Also begin a new data key for every namespace
    #[arg(long)]
    data_keys: bool,
    /// Also begin a new data key for this namespace; may be repeated
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "data_keys")]
    data_key_of: Vec<String>,
}

pub(super) fn run(command: &KeyCommand) -> Result<ExitCode, Failure> {
    match command {
        KeyCommand::Status(args) => status(args),
        KeyCommand::ExportKit(args) => export_kit(&args.folder),
        KeyCommand::AddPassphrase(args) => add_passphrase(args),
        KeyCommand::Import(args) => import(args),
        KeyCommand::Remove(args) => remove(args),
        KeyCommand::AcceptOlder(args) => accept_older(args),
        KeyCommand::Rotate(args) => rotate(args),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn now_ms() -> i64 {
    SystemClock.now_ms()
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    let Place { table, volume, settings } = Place::find(&args.folder)?;
    let found = inventory(&*volume, &encryption::folders()).map_err(EngineError::from)?;
    let bucket = copies_of(&settings.data_dir)?;
    let server = control::beside(&settings.data_dir).and_then(|server| server.progress().ok());
    if args.json {
        out::say(status_json(&table, &found, bucket.as_ref(), server.as_ref()));
        return Ok(());
    }
    out::say(format_args!("repository key {}, table {}", table.key(), table.sequence()));
    for slot in table.slots() {
        let (id, kind, made) = (slot.id, slot.kind, utc_text(slot.created_ms));
        out::say(format_args!("  {id}: {kind}, made {made}: {}", slot.label));
    }
    let count = |state| table.data_keys().filter(|key| key.state == state).count();
    let (current, old) = (count(DataKeyState::Current), count(DataKeyState::Old));
    out::say(format_args!("data keys: {current} in use, {old} for what was written before"));
    if table.accepts_plain() {
        let Inventory { plain, plain_bytes, sealed, sealed_bytes } = found;
        out::say(format_args!(
            "not encrypted yet: {plain} files with {}; encrypted: {sealed} with {}. A running server encrypts the rest, and \
             believes files that are not encrypted until it has",
            size(plain_bytes),
            size(sealed_bytes)
        ));
    } else if old > 0 {
        out::say("a running server encrypts what old data keys encrypted anew, and then drops these");
    }
    if let Some((location, removals)) =
        bucket.filter(|(_, left)| *left > 0 && (table.accepts_plain() || old > 0))
    {
        out::say(format_args!(
            "what was replaced or deleted here still lies in {location}: {removals} files, which a running server removes from \
             there once the new ones are there; not before is this over"
        ));
    }
    if let Some(progress) = &server
        && !progress.done
    {
        show_progress(progress);
    }
    if wants_kit(&table) {
        out::note(NO_KIT);
    }
    Ok(())
}

/// Prints the progress of encrypting anew, as the running server reports it.
fn show_progress(progress: &Progress) {
    let Progress { looked_at, total, converted, converted_bytes, left, why, .. } = progress;
    out::say(format_args!(
        "the running server has looked at {looked_at} of {total} files, and encrypted {converted} with {} since its start",
        size(*converted_bytes)
    ));
    if *left > 0 {
        let why = why.as_deref().unwrap_or("the log says why");
        out::say(format_args!("not encrypted, and tried again: {left} files ({why})"));
    }
}

fn has_kit(table: &KeyTable) -> bool {
    table.slots().any(|slot| slot.kind == SlotKind::RecoveryKit)
}

fn status_json(
    table: &KeyTable,
    found: &Inventory,
    bucket: Option<&(String, u64)>,
    server: Option<&Progress>,
) -> Value {
    let slots: Vec<Value> = table
        .slots()
        .map(|slot| {
            let (id, kind) = (slot.id.to_string(), slot.kind.to_string());
            json!({ "id": id, "kind": kind, "label": slot.label, "created": utc_text(slot.created_ms) })
        })
        .collect();
    let data_keys: Vec<Value> = table
        .data_keys()
        .map(|key| {
            let namespace = match key.owner {
                Owner::Namespace(namespace) => Some(namespace.to_string()),
                Owner::Repository => None,
            };
            json!({
                "id": key.id.to_string(),
                "namespace": namespace,
                "number": key.number.0,
                "current": key.state == DataKeyState::Current,
            })
        })
        .collect();
    json!({
        "repository": table.repository().to_string(),
        "repository_key": table.key().to_string(),
        "slots": slots,
        "data_keys": data_keys,
        "sequence": table.sequence(),
        "plain_accepted": table.accepts_plain(),
        "plain_files": found.plain,
        "plain_bytes": found.plain_bytes,
        "encrypted_files": found.sealed,
        "encrypted_bytes": found.sealed_bytes,
        "recovery_kit": has_kit(table),
        "left_in_bucket": bucket.map(|(_, left)| left),
        "server": server,
    })
}

fn export_kit(folder: &DataFolder) -> Result<(), Failure> {
    // Steps that may fail come before the slot: a kit that no one has must not pass for one.
    let copies = copies_of(&folder.resolve()?.settings.data_dir)?;
    let secret = Secret::random(&SystemRandom).map_err(ServiceError::defect)?;
    let kit = SlotSecret::recovery_kit(secret.clone());
    // Durable before the page is printed: what is printed opens the repository (K1).
    let (place, open, id) = place::change(folder, |place| {
        let mut open = place.open()?;
        let id = open.add_slot(&NewSlot::new(&kit, "printed"), now_ms(), &SystemRandom).map_err(refused)?;
        Ok((open, id))
    })?;
    place.note("key.export-kit", format!("slot {id}: a recovery kit"));
    let mut volumes =
        vec![fs::canonicalize(place.settings.data_dir.join(BLOBS)).unwrap_or_default().display().to_string()];
    volumes.extend(copies.map(|(location, _)| location));
    let commands = [
        "holdfast-server recover --from FOLDER_OF_THE_VOLUME --data-dir /var/lib/holdfast --kit FILE_WITH_THE_WORDS"
            .to_owned(),
        "holdfast-server serve --data-dir /var/lib/holdfast".to_owned(),
    ];
    let page = KitPage {
        repository: open.repository(),
        key: open.table().key(),
        made_ms: now_ms(),
        volumes: &volumes,
        commands: &commands,
    };
    let text = page.text(&secret);
    if let Err(error) = out::deliver(String::from_utf8_lossy(text.expose()).trim_end()) {
        take_back(folder, id)?;
        let text =
            format!("the page could not be written ({error}): the kit is taken back; export another one");
        return Err(Failure::new(ErrorCode::Internal, text));
    }
    out::note("print the page, keep it elsewhere, and keep no file of it");
    Ok(())
}

/// Removes a slot that was just added.
fn take_back(folder: &DataFolder, slot: SlotId) -> Result<(), Failure> {
    let (place, ..) = place::change(folder, |place| {
        let mut open = place.open()?;
        open.remove_slot(slot, now_ms()).map_err(refused)?;
        Ok((open, ()))
    })?;
    place.note("key.remove", format!("slot {slot}: its page could not be written"));
    Ok(())
}

fn add_passphrase(args: &PassphraseArgs) -> Result<(), Failure> {
    let secret = match &args.passphrase_file {
        Some(file) => KeySource::PassphraseFile(file.clone()).read()?,
        None => SlotSecret::passphrase(read_stdin()?),
    };
    let (place, _, id) = place::change(&args.folder, |place| {
        let mut open = place.open()?;
        let new = NewSlot::new(&secret, &args.label);
        let id = open.add_slot(&new, now_ms(), &SystemRandom).map_err(refused)?;
        Ok((open, id))
    })?;
    place.note("key.add", format!("slot {id}: a passphrase ({})", args.label));
    out::note(format_args!("the passphrase opens the repository as slot {id}"));
    Ok(())
}

/// A line that is typed, or all of what comes from a file or a pipe: what a passphrase file with the same bytes says.
fn read_stdin() -> Result<SecretBytes, ServiceError> {
    let stdin = std::io::stdin().lock();
    let mut bytes = Vec::with_capacity(PASSPHRASE_MAX_BYTES + 1);
    let mut limited = BufReader::new(stdin.take(PASSPHRASE_MAX_BYTES as u64 + 1));
    let read = if std::io::stdin().is_terminal() {
        limited.read_until(b'\n', &mut bytes)
    } else {
        limited.read_to_end(&mut bytes)
    };
    read.map_err(no_key)?;
    encryption::passphrase(bytes)
        .ok_or_else(|| no_key(format!("a passphrase has at most {PASSPHRASE_MAX_BYTES} bytes")))
}

fn import(args: &ImportArgs) -> Result<(), Failure> {
    let (place, ..) = place::change(&args.folder, |place| {
        let source = KeySource::of(&place.settings);
        let (open, _) = encryption::open_with_kit(place.table.clone(), &args.kit, &source, &SystemClock)?;
        Ok((open, ()))
    })?;
    let source = KeySource::of(&place.settings);
    place.note("key.import", format!("the {source}, by a recovery kit"));
    out::note(format_args!("the {source} opens the repository"));
    Ok(())
}

fn remove(args: &RemoveArgs) -> Result<(), Failure> {
    let slot = SlotId(args.slot);
    let (place, ..) = place::change(&args.folder, |place| {
        let (mut open, opened_by) = encryption::unlock(place.table.clone(), &KeySource::of(&place.settings))?;
        if slot == opened_by {
            return Err(refused(format!(
                "slot {slot} is what the settings name, and the server could not start without it: name another key first"
            )));
        }
        open.remove_slot(slot, now_ms()).map_err(refused)?;
        Ok((open, ()))
    })?;
    place.note("key.remove", format!("slot {slot}"));
    out::note(format_args!(
        "slot {slot} is removed. Copies of the volume that were made before still open with it: run \
         'holdfast-server key rotate' if someone else may have it"
    ));
    Ok(())
}

fn accept_older(folder: &FolderArgs) -> Result<(), Failure> {
    let _lock = FolderLock::take(&folder.folder.resolve()?.settings.data_dir)?;
    let place = Place::find(&folder.folder)?;
    place.open()?;
    at_work::accept(&place.settings.data_dir, &place.table)?;
    place.note("key.accept-older", format!("table {}", place.table.sequence()));
    out::note(format_args!("table {} of keys counts now", place.table.sequence()));
    Ok(())
}

fn rotate(args: &RotateArgs) -> Result<(), Failure> {
    let (place, open, gone) = place::change(&args.folder, |place| rotated(place, args))?;
    let (source, key) = (KeySource::of(&place.settings), open.table().key());
    let has_data_keys = args.data_keys || !args.data_key_of.is_empty();
    let what = match &args.data_key_of[..] {
        [] if args.data_keys => "and new data keys ".to_owned(),
        [] => String::new(),
        names => format!("and new data keys of {} ", names.join(", ")),
    };
    place.note("key.rotate", format!("repository key {key} {what}in place of {}", place.table.key()));
    out::note(format_args!("the repository key is {key} now; the {source} opens it"));
    for slot in gone {
        out::note(format_args!("slot {} ({}, {}) no longer opens it", slot.id, slot.kind, slot.label));
    }
    if has_data_keys {
        out::note(
            "what is written from now on gets new data keys; a running server encrypts anew what is there ('holdfast-server \
             key status')",
        );
    }
    if !has_kit(open.table()) {
        out::note("export a new recovery kit: holdfast-server key export-kit");
    }
    Ok(())
}

/// The keys of `place` with a new repository key, and what no longer opens it.
fn rotated(place: &Place, args: &RotateArgs) -> Result<(OpenKeys, Vec<SlotInfo>), ServiceError> {
    let source = KeySource::of(&place.settings);
    let (mut open, opened_by) = encryption::unlock(place.table.clone(), &source)?;
    let (secret, label) = (source.read()?, source.label());
    let gone = open
        .rotate_repository_key(&[NewSlot::new(&secret, &label)], now_ms(), &SystemRandom)
        .map_err(refused)?;
    let owners = if args.data_keys {
        open.table().data_keys().map(|key| key.owner).collect()
    } else {
        place.owners(&args.data_key_of)?
    };
    for owner in owners {
        open.retire(owner, now_ms(), &SystemRandom).map_err(refused)?;
    }
    Ok((open, gone.into_iter().filter(|slot| slot.id != opened_by).collect()))
}

#[cfg(test)]
mod tests;
