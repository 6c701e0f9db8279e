//! Reads disks back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_proto::limits::extent_count;
use parking_lot::Mutex;

use super::extents::{EXTENTS_MAX, EXTENTS_MAX_SEVERAL};
use super::jobs::{DecodePool, Jobs};
use super::spans::Spans;
use super::stream::{DiskStreams, Flow};
use super::target::Target;
use super::workers::{Links, Workers};
use super::{BadRange, DiskOfBackup, ReadSummary, Salvage, bad_map};
use crate::cancel::Cancel;
use crate::connect::connections::{CONNECTIONS_MAX, Connections};
use crate::connect::{Connection, Settings};
use crate::end_to_end::Cipher;
use crate::error::ClientError;
use crate::progress::Progress;
use crate::stages::StageTotal;

/// Options of reading disks.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Threads that decode; `None`: one per core and one more.
    pub threads: Option<usize>,
    /// Longest outage to wait for.
    pub retry_for: Duration,
    /// Number of connections that carry one disk.
    pub connections: Connections,
    /// Makes the server read everything from its volume, also what it has in memory.
    pub from_volume: bool,
    /// Naming and protection of chunks.
    pub cipher: Cipher,
}

/// Reads disks of backups.
pub struct Reader {
    links: Links,
    progress: Arc<dyn Progress>,
    pool: Arc<DecodePool>,
    connections: Connections,
    from_volume: bool,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("links", &self.links).finish_non_exhaustive()
    }
}

impl Reader {
    /// A reader that uses `connection`, and more like it.
    ///
    /// # Errors
    /// [`ClientError::Internal`] when threads cannot be started.
    pub fn new(
        settings: Settings,
        connection: Connection,
        progress: Arc<dyn Progress>,
        options: ReadOptions,
    ) -> Result<Self, ClientError> {
        let ReadOptions { threads, retry_for, connections, from_volume, cipher } = options;
        let pool = Arc::new(DecodePool::new(threads, cipher)?);
        let first = Arc::new(Mutex::new(connection));
        let links = Links { settings, first, spare: Arc::default(), retry_for };
        Ok(Self { links, progress, pool, connections, from_volume })
    }

    /// Time spent so far, by stage.
    pub fn stages(&self) -> BTreeMap<&'static str, StageTotal> {
        self.pool.stages.totals()
    }

    /// Reads a whole disk into `target` and finishes it. `before_bytes` is the size of disks read before,
    /// for the progress. What cannot be read ends it, or is named in the summary, as `salvage` says.
    ///
    /// # Errors
    /// Any [`ClientError`]; [`ClientError::Damaged`] when the data is not what was backed up.
    pub async fn read_disk(
        &self,
        disk: &DiskOfBackup,
        target: Arc<dyn Target>,
        salvage: &Salvage,
        before_bytes: u64,
        cancel: &Cancel,
    ) -> Result<ReadSummary, ClientError> {
        let begun = Instant::now();
        self.progress.disk(&disk.disk, before_bytes);
        // Data that can only be written in order would have to be kept in memory until its turn.
        let connections = if target.needs_order() { Connections::Exactly(1) } else { self.connections };
        let jobs = self.jobs(disk, &target, salvage, connections);
        let extents = extent_count(disk.size_bytes);
        let mut again = BTreeSet::new();
        loop {
            let is_again = !again.is_empty();
            let streams = DiskStreams {
                disk: disk.clone(),
                jobs: Arc::clone(&jobs),
                pool: Arc::clone(&self.pool),
                progress: Arc::clone(&self.progress),
                report_damage: salvage.on_damage.goes_on(),
                from_volume: self.from_volume,
                is_again,
                spans: if is_again { Spans::of(extents, &again) } else { Spans::new(extents) },
                flow: Flow::default(),
            };
            let outcome = Workers::new(streams, self.links.clone()).read(connections, cancel).await;
            if let Err(error) = outcome {
                return Err(leaving(&*target, jobs.ended_by(error).await));
            }
            // (N8) Each time the server is asked to pass over more.
            again = jobs.take_again().await.map_err(|error| leaving(&*target, error))?;
            if again.is_empty() {
                break;
            }
        }
        jobs.finish().await.map_err(|error| leaving(&*target, error))?;
        let bad = jobs.bad_ranges();
        complete(disk, target, salvage.map.clone(), bad.clone()).await?;
        // Only now: what is there is all there is, and may be better than nothing.
        let (count, extents) = jobs.false_digests();
        if count > 0 {
            let extents = extents.clone();
            let error = ClientError::FalseDigests { disk: disk.disk.clone(), count, extents };
            if bad.is_empty() {
                return Err(error);
            }
            // Unreadable data is worse, and is what the caller is told; the exit code is the same.
            tracing::error!(%error, "extents that can be read are not what their backup recorded");
        }
        Ok(ReadSummary {
            size_bytes: disk.size_bytes,
            data_bytes: jobs.written_bytes(),
            seconds: begun.elapsed().as_secs_f64(),
            bad,
            false_chunks: jobs.false_chunks(),
            false_digests: extents,
        })
    }

    /// Creates the jobs of a disk, none yet, with room for as many connections as there will be.
    fn jobs(
        &self,
        disk: &DiskOfBackup,
        target: &Arc<dyn Target>,
        salvage: &Salvage,
        connections: Connections,
    ) -> Arc<Jobs> {
        let several = connections.first(self.links.first.lock().rtt(), CONNECTIONS_MAX) > 1;
        let room = if several { EXTENTS_MAX_SEVERAL } else { EXTENTS_MAX };
        let (pool, target, progress) =
            (Arc::clone(&self.pool), Arc::clone(target), Arc::clone(&self.progress));
        let disk = (disk.disk.as_str(), self.from_volume);
        Jobs::new(pool, disk, target, salvage.on_damage, progress, room)
    }
}

/// Adds what a restore that failed leaves of its target.
fn leaving(target: &dyn Target, error: ClientError) -> ClientError {
    match target.left_unfinished() {
        Some(left) => error.leaving(left),
        None => error,
    }
}

/// Writes the map of bad ranges, then finishes the target: one that lacks data must not get its name without the map. Where that
/// fails, what is there still has the map that it had.
async fn complete(
    disk: &DiskOfBackup,
    target: Arc<dyn Target>,
    map: Option<PathBuf>,
    bad: Vec<BadRange>,
) -> Result<(), ClientError> {
    let disk = disk.clone();
    let work = move || {
        let Some(path) = map else { return target.finish() };
        if bad.is_empty() {
            target.finish()?;
            return bad_map::remove(&path);
        }
        let written = bad_map::write(&path, &disk, &bad)?;
        let finished = target.finish();
        written.settle(finished.is_err() && target.is_untouched());
        finished
    };
    let cut_short = ClientError::Internal("finishing the target was cut short");
    tokio::task::spawn_blocking(work).await.map_err(|_| cut_short)?
}

#[cfg(test)]
mod tests {
    use super::super::target::NullTarget;
    use super::*;

    /// Cannot be finished.
    struct Failing {
        untouched: bool,
    }

    impl Target for Failing {
        fn write_at(&self, _: u64, _: &[u8]) -> Result<(), ClientError> {
            Ok(())
        }

        fn zero(&self, _: u64, _: u64) -> Result<(), ClientError> {
            Ok(())
        }

        fn is_untouched(&self) -> bool {
            self.untouched
        }

        fn finish(&self) -> Result<(), ClientError> {
            Err(ClientError::Internal("a test"))
        }
    }

    #[tokio::test]
    async fn an_older_image_that_stays_keeps_its_map() {
        let folder = tempfile::tempdir().unwrap();
        let map = folder.path().join("root.raw.bad-ranges");
        let read = || std::fs::read_to_string(&map).unwrap();
        let disk = |id: &str| DiskOfBackup { backup_id: id.into(), disk: "root".into(), size_bytes: 1 << 20 };
        let bad = || vec![BadRange { offset: 0, len: 4096, reason: "rot".into(), container: "".into() }];
        let at = Some(map.clone());
        complete(&disk("01A"), Arc::new(NullTarget), at.clone(), bad()).await.unwrap();
        let older = read();
        for bad in [Vec::new(), bad()] {
            let target = Arc::new(Failing { untouched: true });
            complete(&disk("02B"), target, at.clone(), bad).await.unwrap_err();
            assert_eq!(read(), older);
        }
        // What is partly written has the new one.
        let target = Arc::new(Failing { untouched: false });
        complete(&disk("02B"), target, at.clone(), bad()).await.unwrap_err();
        assert!(read().contains("02B"), "{}", read());
        complete(&disk("03C"), Arc::new(NullTarget), at, Vec::new()).await.unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
