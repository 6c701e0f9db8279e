//! What every row of an attempt refers to.

/// The VM and job an attempt belongs to, by id.
pub(super) struct AttemptRefs {
    pub(super) vm: [u8; 16],
    pub(super) job: [u8; 16],
    /// The job's name: that of the attempt, unless its run has another job.
    pub(super) job_name: String,
}
