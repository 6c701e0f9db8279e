//! The Holdfast agent.
