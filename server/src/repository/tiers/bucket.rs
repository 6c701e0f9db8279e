//! The bucket that the settings name, and how readers and copies reach it.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

use holdfast_engine::clock::Clock;
use holdfast_proto::ErrorCode;
use holdfast_proto::rate_window::RateWindows;
use holdfast_s3::{OpenError, S3Config, S3Volume};
use holdfast_tiers::Remote;
use holdfast_volume::{
    RateSchedule, Rates, RetryPolicy, RetryVolume, SystemRandom, SystemTimer, ThrottleVolume, Volume,
};

use crate::config::{Settings, server_encryption};
use crate::error::ServiceError;

/// Largest file of certificates: above any bundle.
const CA_MAX_BYTES: u64 = 4 << 20;

/// The bucket that the settings name.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) store: Arc<S3Volume>,
    pub(crate) location: String,
}

/// Opens the bucket of the settings, without asking it for anything; `None`: they name none.
///
/// # Errors
/// `Invalid`: the settings.
pub(crate) fn open_bucket(settings: &Settings) -> Result<Option<Bucket>, ServiceError> {
    let Some(config) = s3_config(settings)? else { return Ok(None) };
    let location = config.location();
    Ok(Some(Bucket { store: Arc::new(S3Volume::open(config).map_err(open_error)?), location }))
}

/// The bucket as readers and copies see it.
pub(super) fn remote(bucket: &Arc<S3Volume>, settings: &Settings, clock: &Arc<dyn Clock>) -> Remote {
    let volume = || Arc::<S3Volume>::clone(bucket) as Arc<dyn Volume>;
    let timer = Arc::new(SystemTimer::new());
    let retried = RetryVolume::new(
        volume(),
        RetryPolicy::default(),
        Arc::<SystemTimer>::clone(&timer),
        Arc::new(SystemRandom),
    );
    let windows = RateWindows { windows: settings.s3_rate_windows.clone(), otherwise: settings.s3_rate };
    let writes = match Some(windows).filter(RateWindows::is_limited) {
        Some(windows) => {
            let rates = SendRates { windows, clock: Arc::clone(clock) };
            let reads = Arc::new(Rates::default());
            Arc::new(ThrottleVolume::scheduled(volume(), reads, Arc::new(rates), timer)) as Arc<dyn Volume>
        }
        None => volume(),
    };
    Remote { store: Arc::<S3Volume>::clone(bucket), reads: Arc::new(retried), writes }
}

/// The rate at which the bucket may be sent to now.
#[derive(Debug)]
struct SendRates {
    windows: RateWindows,
    clock: Arc<dyn Clock>,
}

impl RateSchedule for SendRates {
    fn rates(&self) -> Rates {
        Rates { bytes_per_sec: self.windows.bytes_per_sec(self.clock.now_ms()), requests_per_sec: None }
    }
}

fn s3_config(settings: &Settings) -> Result<Option<S3Config>, ServiceError> {
    let Some(location) = &settings.s3 else { return Ok(None) };
    let mut config = S3Config::of(location).map_err(open_error)?;
    config.endpoint =
        settings.s3_endpoint.as_deref().map(|endpoint| endpoint.trim_end_matches('/').to_owned());
    config.region.clone_from(&settings.s3_region);
    config.path_style = settings.s3_path_style;
    config.ca = settings.s3_ca.as_deref().map(read_ca).transpose()?;
    let profile = settings.s3_profile.clone();
    config.credentials = match &settings.s3_credentials {
        Some(path) => holdfast_s3::Credentials::File { path: path.clone(), profile },
        None => holdfast_s3::Credentials::Chain { profile },
    };
    config.checksum = settings.s3_checksum.into();
    config.class.clone_from(&settings.s3_class);
    config.requests_per_sec = NonZeroU64::new(settings.s3_requests.into());
    config.encryption = server_encryption(settings.s3_sse.as_deref()).unwrap_or_default();
    Ok(Some(config))
}

fn read_ca(path: &Path) -> Result<Vec<u8>, ServiceError> {
    let failed =
        |why: &dyn std::fmt::Display| ServiceError::invalid(format!("s3_ca {}: {why}", path.display()));
    let found = std::fs::metadata(path).map_err(|error| failed(&error))?;
    if found.len() > CA_MAX_BYTES {
        return Err(failed(&format_args!("it has more than {CA_MAX_BYTES} bytes")));
    }
    std::fs::read(path).map_err(|error| failed(&error))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn open_error(error: OpenError) -> ServiceError {
    match error {
        OpenError::Threads(_) => ServiceError::new(ErrorCode::Internal, error.to_string()),
        OpenError::Ca(_) | OpenError::Location(_) => ServiceError::invalid(error.to_string()),
    }
}
