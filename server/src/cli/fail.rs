//! Failures of commands: one line for people, one code for scripts.

use std::process::ExitCode;

use holdfast_engine::EngineError;
use holdfast_engine::catalog::CatalogError;
use holdfast_proto::ErrorCode;

use super::out;
use crate::config::ConfigError;
use crate::error::ServiceError;
use crate::memory::NotEnoughMemory;
use crate::server::StartError;

/// Wrong usage or settings; clap uses the same.
const USAGE: u8 = 2;

#[derive(Debug)]
pub(super) struct Failure {
    exit_code: u8,
    message: String,
}

impl Failure {
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self { exit_code: USAGE, message: message.into() }
    }

    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { exit_code: code.exit_code(), message: message.into() }
    }

    /// Prints the message and gives the exit code.
    pub(super) fn report(&self) -> ExitCode {
        out::note(format_args!("holdfast-server: {}", self.message));
        ExitCode::from(self.exit_code)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<NotEnoughMemory> for Failure {
    fn from(error: NotEnoughMemory) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        Self::new(error.code, error.message)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        ServiceError::from(error).into()
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        ServiceError::from(error).into()
    }
}
