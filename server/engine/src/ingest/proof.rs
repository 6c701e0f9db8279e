//! Proving extent digests with what is at hand anyway.
//!
//! (W11) The digest of an extent all of whose chunks the stream has just sent is recomputed, and a stream that
//! lies fails. Regions are decoded to be verified (W1); the plain bytes of the last few are kept, as many as the
//! longest extent and the regions it begins and ends in. An agent describes an extent right after its last
//! region, so all its chunks are among them, unless the repository had some already. Such a digest stays a claim:
//! it is offered only to the owner of the VM, and `verify`, `check --read-data` and the periodic rereading
//! find what is wrong with it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::Fingerprint;

use crate::container::VerifiedRegion;
use crate::core::Core;
use crate::digests::{ExtentHasher, is_claim};
use crate::error::EngineError;
use crate::fair::Tenant;
use crate::format::recipe::ExtentNode;
use crate::task::{self, Task};

/// Plain bytes kept: an extent of 4 MiB, and what its first and last region have of its neighbours.
const KEPT_MAX_BYTES: usize = 5 << 20;

/// Chunks kept at most, of 100 bytes each beside their own: ten times what an agent's take.
const KEPT_CHUNKS_MAX: usize = 1 << 13;

/// Extents being hashed at most; each may hold regions that are not kept any more.
const HASHING_MAX: usize = 2;

/// Extents that wait for regions in verification at most; 1,024 pieces each, 9 MB.
const WAITING_MAX: usize = 256;

/// One stream's memory and the proofs under way.
#[derive(Debug)]
pub(super) struct Proofs {
    core: Arc<Core>,
    /// On whose behalf it works.
    tenant: Tenant,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
    chunks: HashMap<Fingerprint, Place>,
    /// Regions submitted and verified so far.
    submitted: u64,
    verified: u64,
    waiting: VecDeque<Claim>,
    hashing: VecDeque<(u64, Fingerprint, Task<Fingerprint>)>,
}

/// A region's plain bytes.
#[derive(Debug)]
struct Kept {
    number: u64,
    fingerprints: Vec<Fingerprint>,
    bytes: usize,
}

/// Place of a chunk: in region `number` of the stream, at `offset` of its plain bytes.
#[derive(Debug, Clone)]
struct Place {
    number: u64,
    offset: usize,
    plain: Bytes,
}

/// An extent and what the agent says that it hashes to.
#[derive(Debug)]
struct Claim {
    index: u64,
    digest: Fingerprint,
    node: ExtentNode,
    /// Regions sent before it.
    after: u64,
}

/// A part of an extent as it is hashed.
#[derive(Debug)]
enum Part {
    Data(Bytes),
    Zeros(usize),
}

impl Proofs {
    pub(super) fn new(core: &Arc<Core>, tenant: Tenant) -> Self {
        Self {
            core: Arc::clone(core),
            tenant,
            kept: VecDeque::new(),
            kept_bytes: 0,
            chunks: HashMap::new(),
            submitted: 0,
            verified: 0,
            waiting: VecDeque::new(),
            hashing: VecDeque::new(),
        }
    }

    /// A region was handed to verification.
    pub(super) const fn submitted(&mut self) {
        self.submitted += 1;
    }

    /// The next region was verified: keeps it, and looks at the extents that waited for it.
    ///
    /// # Errors
    /// As [`Proofs::settle`].
    pub(super) fn verified(&mut self, region: &VerifiedRegion, plain: &Bytes) -> Result<(), EngineError> {
        self.verified += 1;
        let mut offset = 0;
        for (fingerprint, length) in region.fingerprints().iter().zip(region.lengths()) {
            let place = Place { number: self.verified, offset, plain: plain.clone() };
            self.chunks.insert(*fingerprint, place);
            offset += *length as usize;
        }
        let fingerprints = region.fingerprints().to_vec();
        self.kept_bytes += plain.len();
        self.kept.push_back(Kept { number: self.verified, fingerprints, bytes: plain.len() });
        while (self.kept_bytes > KEPT_MAX_BYTES || self.chunks.len() > KEPT_CHUNKS_MAX)
            && let Some(oldest) = self.kept.pop_front()
        {
            self.forget(&oldest);
        }
        while let Some(claim) = self.waiting.pop_front_if(|claim| claim.after <= self.verified) {
            self.prove(&claim)?;
        }
        Ok(())
    }

    fn forget(&mut self, oldest: &Kept) {
        self.kept_bytes -= oldest.bytes;
        for fingerprint in &oldest.fingerprints {
            if self.chunks.get(fingerprint).is_some_and(|place| place.number == oldest.number) {
                self.chunks.remove(fingerprint);
            }
        }
    }

    /// Takes the digest of an extent that an agent claims; proves it once all regions sent before are verified.
    ///
    /// # Errors
    /// As [`Proofs::settle`].
    pub(super) fn claim(
        &mut self,
        index: u64,
        digest: Fingerprint,
        node: ExtentNode,
    ) -> Result<(), EngineError> {
        if !is_claim(&digest) {
            return Ok(());
        }
        let claim = Claim { index, digest, node, after: self.submitted };
        if claim.after <= self.verified {
            return self.prove(&claim);
        }
        self.waiting.push_back(claim);
        Ok(())
    }

    /// A digest came that cannot be proved here.
    pub(super) fn not_provable(&self) {
        self.core.digests.unproved();
    }

    /// Returns true if the caller must wait for regions before it claims more.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    fn prove(&mut self, claim: &Claim) -> Result<(), EngineError> {
        let Some(parts) = self.parts(&claim.node) else {
            self.core.digests.unproved();
            return Ok(());
        };
        while self.hashing.len() >= HASHING_MAX {
            self.take_one(true)?;
        }
        let pool = &self.core.verify_pool;
        let hash = task::spawn(pool, self.tenant, "hashing an extent", move || digest(&parts));
        self.hashing.push_back((claim.index, claim.digest, hash));
        Ok(())
    }

    /// Returns the parts of the extent, neighbours joined; `None` when a chunk is not at hand.
    fn parts(&self, node: &ExtentNode) -> Option<Vec<Part>> {
        let mut parts = Vec::new();
        // The region and the span of its bytes that the last part takes.
        let mut last: Option<(u64, usize, usize)> = None;
        for piece in node.pieces() {
            let bytes = piece.bytes as usize;
            if piece.is_zero() {
                parts.push(Part::Zeros(bytes));
                last = None;
                continue;
            }
            let Place { number, offset, plain } = self.chunks.get(&piece.fingerprint)?;
            let end = offset.checked_add(bytes).filter(|end| *end <= plain.len())?;
            let begin = match last {
                Some((region, begin, until)) if region == *number && until == *offset => {
                    parts.pop();
                    begin
                }
                _ => *offset,
            };
            parts.push(Part::Data(plain.slice(begin..end)));
            last = Some((*number, begin, end));
        }
        Some(parts)
    }

    /// Takes the outcome of proofs that are done; of all when `wait` is set.
    ///
    /// # Errors
    /// [`EngineError::FalseDigest`].
    pub(super) fn settle(&mut self, wait: bool) -> Result<(), EngineError> {
        while self.take_one(wait)? {}
        Ok(())
    }

    fn take_one(&mut self, wait: bool) -> Result<bool, EngineError> {
        let Some((index, claimed, hash)) = self.hashing.front() else { return Ok(false) };
        let (index, claimed) = (*index, *claimed);
        let actual = if wait {
            hash.wait()?
        } else {
            match hash.try_take() {
                Some(actual) => actual?,
                None => return Ok(false),
            }
        };
        self.hashing.pop_front();
        if actual == claimed {
            self.core.digests.proved();
            return Ok(true);
        }
        self.core.digests.refused();
        Err(EngineError::FalseDigest { disk: String::new(), extent: index, claimed, actual })
    }

    /// Lets go of everything; for a stream that has finished.
    pub(super) fn finish(&mut self) {
        *self = Self::new(&self.core, self.tenant);
    }
}

fn digest(parts: &[Part]) -> Fingerprint {
    let mut hasher = ExtentHasher::default();
    for part in parts {
        match part {
            Part::Data(bytes) => hasher.data(bytes),
            Part::Zeros(bytes) => hasher.zeros(*bytes),
        }
    }
    hasher.finish()
}
