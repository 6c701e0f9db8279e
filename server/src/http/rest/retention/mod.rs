//! Retention: restore points that are deleted, locked and held (`points`), and retention policies (`policies`).

pub(super) mod points;
pub(super) mod policies;
