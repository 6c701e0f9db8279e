//! Lets the C allocator keep the memory of regions and messages.
//!
//! They are a few hundred kilobytes each, and are freed on another thread than allocated them. By default glibc gives
//! their memory back to the system and gets it again a moment later, cleared: in a first full 70,000 page faults, a
//! third of the system time of an agent.

/// Allocations of at least this size are mapped by themselves, as rarely as possible.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAP_THRESHOLD_BYTES: libc::c_int = 32 << 20;

/// Free memory at the end of an arena beyond this goes back to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_THRESHOLD_BYTES: libc::c_int = 64 << 20;

/// Sets the allocator up. Call it before the first thread starts.
pub(crate) fn configure() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt takes two integers by value and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAP_THRESHOLD_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES);
    }
}
