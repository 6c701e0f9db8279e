//! Verification at the server: reads the newest restore point of every VM back.
//!
//! Each is recorded as it is done, as when an agent verifies it. A later attempt goes on behind the last VM that was done;
//! a restore point that was half read is read again.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::catalog::{BackupRecord, CatalogError, PageRequest, TaskKind, Verification, VmRecord};
use holdfast_engine::clock::Clock;
use holdfast_engine::ids::BackupId;
use holdfast_engine::{Engine, EngineError};
use holdfast_proto::ErrorCode;
use holdfast_proto::api::VerifyOptions as Options;
use serde::{Deserialize, Serialize};

use super::control::{Control, Stopped};
use super::work::{DefaultSchedule, Order, Work, WorkError, normal_options, read_options};
use crate::activity::{Activity, Change};
use crate::error::ServiceError;
use crate::insight::agents_sentence;
use crate::metrics::Metrics;

/// Saturdays at 08:00, after the night's backups: reading everything takes hours on large repositories, and what is found
/// damaged is healed by the backups of the weekend, or at the latest by those of Monday's night.
const SCHEDULE: DefaultSchedule = DefaultSchedule { expression: "0 8 * * SAT", enabled: true };

/// VMs that are looked up at a time.
const PAGE: u32 = 500;

/// Restore points that are tried again at most: where more cannot be read, another try will not do.
const AGAIN_MAX: usize = 500;

/// Pause before restore points that could not be read are tried again.
const REST: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Figures {
    restore_points: u64,
    sound: u64,
    damaged: u64,
    /// Restore points not read, because they lie in an archive in part.
    #[serde(default)]
    archived: u64,
    /// Restore points that could not be read, and so not judged.
    #[serde(default)]
    unclear: u64,
    bytes: u64,
}

/// Progress between attempts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Place {
    /// VMs that are done, in the order of the list.
    vms: u64,
    figures: Figures,
    /// Restore points that could not be read, the first [`AGAIN_MAX`]: they are tried again at the end.
    #[serde(default)]
    again: Vec<String>,
}

/// The work of a verification task.
#[derive(Debug)]
pub(crate) struct VerifyWork {
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) activity: Arc<Activity>,
}

impl Work for VerifyWork {
    fn kind(&self) -> TaskKind {
        TaskKind::Verify
    }

    fn default_schedule(&self) -> Option<DefaultSchedule> {
        Some(SCHEDULE)
    }

    fn check(&self, options: &str) -> Result<String, ServiceError> {
        normal_options::<Options>(options)
    }

    fn run(&self, order: &Order, control: &Control) -> Result<(), WorkError> {
        let vms = self.vms(&read_options::<Options>(&order.options)?)?;
        let mut place: Place = serde_json::from_str(&order.place).unwrap_or_default();
        // The list may have changed since; VMs that came are verified next time.
        let done = place.vms.min(vms.len() as u64);
        control.expect(vms.len() as u64, "VMs");
        control.advance(done);
        for vm in vms.iter().skip(usize::try_from(done).unwrap_or(usize::MAX)) {
            control.check()?;
            if let Some(backup) = self.engine.catalog().latest_backup(vm.namespace, &vm.name)?
                && !self.one(&backup, &order.who, control, &mut place.figures)?
            {
                place.figures.unclear += 1;
                if place.again.len() < AGAIN_MAX {
                    place.again.push(backup.id.to_string());
                }
            }
            place.vms += 1;
            control.set_figures(&place.figures);
            control.set_place(serde_json::to_string(&place).map_err(ServiceError::defect)?);
            control.advance(1);
        }
        self.again(order, control, &mut place)?;
        let Figures { restore_points, damaged, archived, unclear, bytes, .. } = place.figures;
        let left_out = match archived {
            0 => String::new(),
            count => format!(", {count} not read: they lie in the archive in part"),
        };
        control.set_figures(&place.figures);
        // Said before the last line, which is the verdict.
        for found in self.engine.catalog().agents_proof_summaries()? {
            control.log(agents_sentence(&found));
        }
        control.log(format!(
            "{restore_points} restore points and {bytes} bytes read, {damaged} damaged{left_out}"
        ));
        if unclear > 0 {
            let why = format!(
                "{unclear} restore points could not be read, so it is not known how they are; the log names them"
            );
            return Err(ServiceError::new(ErrorCode::Unavailable, why).into());
        }
        Ok(())
    }
}

impl VerifyWork {
    /// Tries again what could not be read.
    fn again(&self, order: &Order, control: &Control, place: &mut Place) -> Result<(), WorkError> {
        if !place.again.is_empty() {
            control.rest(REST)?;
        }
        while let Some(id) = place.again.last() {
            control.check()?;
            let id = id.parse::<BackupId>().ok();
            let backup = id.map_or(Ok(None), |id| self.engine.catalog().backup(id))?;
            // A restore point deleted meanwhile is not unclear any more.
            if backup.map_or(Ok(true), |backup| self.one(&backup, &order.who, control, &mut place.figures))? {
                place.figures.unclear = place.figures.unclear.saturating_sub(1);
            }
            place.again.pop();
            control.set_figures(&place.figures);
            control.set_place(serde_json::to_string(place).map_err(ServiceError::defect)?);
        }
        Ok(())
    }

    /// VMs in one order, so that a place in it means something.
    fn vms(&self, options: &Options) -> Result<Vec<VmRecord>, ServiceError> {
        let catalog = self.engine.catalog();
        let scope = match &options.namespace {
            Some(name) => {
                let found = catalog.namespace_by_name(name)?;
                let found =
                    found.ok_or_else(|| ServiceError::invalid(format!("there is no namespace {name:?}")))?;
                Some(vec![found.id])
            }
            None => None,
        };
        let (mut vms, mut token) = (Vec::new(), String::new());
        loop {
            let page = catalog.list_vms(scope.as_deref(), PageRequest { size: PAGE, token: &token })?;
            vms.extend(
                page.items.into_iter().filter(|vm| options.vm.as_ref().is_none_or(|name| *name == vm.name)),
            );
            match page.next {
                Some(next) => token = next,
                None => return Ok(vms),
            }
        }
    }

    /// Reads one restore point, and records what was found. `false`: it could not be read.
    fn one(
        &self,
        backup: &BackupRecord,
        who: &str,
        control: &Control,
        figures: &mut Figures,
    ) -> Result<bool, WorkError> {
        let mut go_on = |bytes| control.charge(bytes).is_ok();
        let read = self.engine.verify_backup(backup.namespace, backup.id, who, &mut go_on);
        let report = match read {
            Ok(Some(report)) => report,
            Ok(None) => return Err(Stopped.into()),
            // Deleted meanwhile.
            Err(error) if self.engine.catalog().backup(backup.id)?.is_none() => {
                control.log(format!("VM {:?}: {error}", backup.vm));
                return Ok(true);
            }
            // (T10) It is not thawed for this, and says nothing of the others.
            Err(error @ EngineError::Archived(_)) => {
                figures.archived += 1;
                control
                    .log(format!("VM {:?}, restore point {}, was not read: {error}", backup.vm, backup.id));
                return Ok(true);
            }
            // (V7) The others are read, and this one again later.
            Err(error) if error.is_of_one_object() => {
                control.log(format!(
                    "VM {:?}, restore point {}, could not be read: {error}",
                    backup.vm, backup.id
                ));
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        let ok = report.is_sound();
        let read = format!("{} bytes read and found sound by the server", report.bytes);
        let detail = if ok { read } else { format!("{}; {read}", report.places.join("; ")) };
        let verification = Verification {
            backup: backup.id,
            at_ms: self.clock.now_ms(),
            who: who.to_owned(),
            by_agent: false,
            ok,
            detail: detail.clone(),
        };
        match self.engine.catalog().record_verification(&verification) {
            // Deleted meanwhile: there is nothing to record it of, and the others are still to be read.
            Err(CatalogError::NotFound { .. }) => {
                control.log(format!("VM {:?}: restore point {} was deleted meanwhile", backup.vm, backup.id));
                return Ok(true);
            }
            recorded => recorded?,
        }
        self.metrics.verified(ok);
        self.activity.note(Change::Backup);
        figures.restore_points += 1;
        figures.bytes += report.bytes;
        if ok {
            figures.sound += 1;
        } else {
            figures.damaged += 1;
            let (extents, lies) = (report.damaged_extents, report.false_digests);
            tracing::error!(vm = backup.vm, backup = %backup.id, extents, lies, detail, "a restore point is damaged");
            control.log(format!("DAMAGED: VM {:?}, restore point {}: {detail}", backup.vm, backup.id));
        }
        Ok(true)
    }
}
