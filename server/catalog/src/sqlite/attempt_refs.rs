//! References from every row of an attempt to its VM and job.

/// The VM and job an attempt belongs to, by id.
pub(crate) struct AttemptRefs {
    pub(crate) vm: [u8; 16],
    pub(crate) job: [u8; 16],
    /// The job's name: that of the attempt, unless its run has another job.
    pub(crate) job_name: String,
}
