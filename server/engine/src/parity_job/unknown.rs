//! Blobs that the catalog does not know: what a crash left, or more than a catalog that was lost.

use std::collections::BTreeSet;

use holdfast_catalog::ParityGroup;
use holdfast_types::ids::{ContainerId, NamespaceId};
use holdfast_volume::list_all;

use super::ParityJob;
use crate::check;
use crate::container::Owner;
use crate::container_repair;
use crate::error::EngineError;
use crate::format::parity::ParityMember;
use crate::parity;
use crate::jobs::NoProgress;

impl ParityJob {
    /// Enters blobs that the catalog does not know, or removes them.
    pub(super) fn enter(&self) -> Result<(), EngineError> {
        let core = &self.core;
        for entry in list_all(&*core.volume, &parity::folder()) {
            let name = entry?.name;
            let Some(number) = parity::parse(&name) else {
                tracing::warn!(%name, "ignored an unexpected file among the parity");
                continue;
            };
            if core.catalog.has_parity_group(number)? {
                continue;
            }
            match parity::read_members(&*core.volume, core.repository, number) {
                Ok((members, stored_bytes)) => self.enter_one(number, &members, stored_bytes)?,
                // Nothing can be made of it, and nothing ever will be.
                Err(EngineError::Damaged(error)) => {
                    tracing::warn!(%name, %error, "removed parity that the catalog does not know");
                    self.remove_blob(number)?;
                }
                // (E4) It may be the last that something can be made again of.
                Err(error) => {
                    tracing::warn!(%name, %error, "kept parity that cannot be read now; the next start tries again");
                }
            }
        }
        Ok(())
    }

    fn enter_one(
        &self,
        number: ContainerId,
        members: &[ParityMember],
        stored_bytes: u64,
    ) -> Result<(), EngineError> {
        let core = &self.core;
        let mut unknown = Vec::new();
        let mut namespace = None;
        for member in members {
            match core.catalog.container(member.id)? {
                Some(record) if record.stored_bytes == u64::from(member.stored_bytes) => {
                    namespace = Some(record.namespace);
                }
                record => unknown.push((member, record.is_none())),
            }
        }
        let ids = members.iter().map(|member| member.id).collect();
        let group = ParityGroup { number, members: ids, stored_bytes, created_ms: core.clock.now_ms() };
        // (E8) A catalog that is older than a replacement knows what was replaced.
        let other = members.first().map_or(Ok(None), |member| core.catalog.parity_group_of(member.id))?;
        let replaced = other.filter(|other| {
            let read = parity::read_members(&*core.volume, core.repository, *other);
            matches!(read, Err(EngineError::Damaged(_)))
        });
        if unknown.is_empty() && core.catalog.add_parity_group(&group, replaced).is_ok() {
            tracing::info!(%number, "entered parity that the catalog did not know");
            return Ok(());
        }
        let lost: Vec<ParityMember> =
            unknown.into_iter().filter(|(_, has_no_row)| *has_no_row).map(|(member, _)| *member).collect();
        match namespace {
            Some(namespace) if !lost.is_empty() && !self.bring_back(number, namespace, &lost)? => Ok(()),
            _ => self.remove_blob(number),
        }
    }

    /// (E10) Containers of which nothing but this parity tells were deleted, or lost with the catalog that knew them: where a
    /// restore point lacks something, what can be made again of them is written anew. Whether the parity may go.
    fn bring_back(
        &self,
        number: ContainerId,
        namespace: NamespaceId,
        lost: &[ParityMember],
    ) -> Result<bool, EngineError> {
        let core = &self.core;
        let wanted: BTreeSet<ContainerId> =
            lost.iter().map(|member| member.id).filter(|id| !core.store.leftovers.is_gone(*id)).collect();
        // (P6, S8) What is not known may need what was lost.
        if core.unrecorded.check_all_known().is_err() || core.has_left_point() {
            return Ok(false);
        }
        let found = match parity::repairable(&*core.volume, core.repository, number, &wanted) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%number, %error, "kept parity of which it cannot be told now what it can bring back");
                return Ok(false);
            }
        };
        if found.is_empty() || check::is_whole(core, namespace, &NoProgress)? {
            return Ok(true);
        }
        for member in lost.iter().filter(|member| found.contains(&member.id)) {
            let (id, class) = (member.id, member.class);
            let owner = Owner { id, class, namespace, created_ms: core.clock.now_ms() };
            let stored_bytes = member.stored_bytes.into();
            let made = parity::reconstruct(&*core.volume, core.repository, number, owner, stored_bytes)?;
            let Some((open, complete)) = made else { return Ok(false) };
            if !container_repair::write_anew(core, open, complete)? {
                return Ok(false);
            }
            tracing::info!(container = %id, %number, "brought back a container that only its parity told of");
        }
        Ok(true)
    }
}
