//! The Holdfast server.
