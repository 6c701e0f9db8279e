//! What all of a backup's streams share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::compress::Compressor;
use super::limits::Limits;
use super::options::BackupOptions;
use super::upload_limit::UploadLimit;
use crate::connect::connections::Connections;
use crate::end_to_end::Cipher;
use crate::error::ClientError;
use crate::pool::RegionBufferPool;
use crate::progress::Progress;
use crate::stages::Stages;

/// The stages between a disk and the network, with their limits and counters.
pub(crate) struct Pipeline {
    pub(crate) limits: Limits,
    pub(crate) compressor: Compressor,
    pub(crate) cipher: Cipher,
    pub(crate) region_buffers: RegionBufferPool,
    pub(crate) upload_limit: UploadLimit,
    /// How many connections are to carry a disk's data.
    pub(crate) connections: Connections,
    /// How many did so last, when there were several: what the next stream begins with. 0 before that.
    pub(crate) connections_found: AtomicU32,
    pub(crate) stages: Arc<Stages>,
    pub(crate) progress: Arc<dyn Progress>,
    /// Region payload handed to the transport.
    pub(crate) sent_bytes: AtomicU64,
    /// Whether every extent is to be read, whatever the parent says of it.
    pub(crate) reread_all: bool,
    /// Extents read although the parent might have said that they are unchanged.
    pub(crate) reread_extents: Arc<AtomicU64>,
    /// Whether the server made the latest stream wait for its turn.
    pub(crate) has_waited: AtomicBool,
}

impl Pipeline {
    /// Starts the compressing threads.
    ///
    /// # Errors
    /// Those of [`Compressor::new`].
    pub(crate) fn new(options: &BackupOptions, progress: Arc<dyn Progress>) -> Result<Self, ClientError> {
        let limits = Limits::for_threads(options.threads);
        let (region_buffers, stages) = (RegionBufferPool::default(), Arc::new(Stages::default()));
        let compressor = Compressor::new(
            limits.compress_threads,
            (options.level, options.cipher.clone()),
            Arc::clone(&region_buffers),
            Arc::clone(&stages),
        )?;
        let upload_limit = UploadLimit::new(options.limit_upload);
        let sent_bytes = AtomicU64::new(0);
        Ok(Self {
            limits,
            compressor,
            cipher: options.cipher.clone(),
            region_buffers,
            upload_limit,
            connections: options.connections,
            connections_found: AtomicU32::new(0),
            stages,
            progress,
            sent_bytes,
            reread_all: options.reread,
            reread_extents: Arc::default(),
            has_waited: AtomicBool::new(false),
        })
    }
}
