//! Credentials from a file that may be replaced at any time: a new version takes effect without a restart.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::Credentials as Keys;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, Result as Provided, future};
use aws_runtime::env_config::file::{EnvConfigFileKind, EnvConfigFiles};
use aws_sdk_s3::config::SharedHttpClient;

/// Expiring credentials are replaced this long before they expire.
const BEFORE_END: Duration = Duration::from_secs(300);

/// Identifies one version of a file: inode, length, and time of the last change.
type Stamp = (u64, u64, i64, i64);

/// Credentials of a profile in a file in the format of `~/.aws/credentials`. A request costs a `stat`; the file is
/// read when it has changed, and before its credentials expire.
#[derive(Debug)]
pub(crate) struct FileCredentials {
    path: PathBuf,
    profile: Option<String>,
    network: ProviderConfig,
    known: Arc<Mutex<Option<(Stamp, Keys)>>>,
}

impl FileCredentials {
    /// `http`: a profile may name a role, which is requested over the network; without a client the SDK panics,
    /// whatever the profile names.
    pub(crate) fn new(path: PathBuf, profile: Option<String>, http: SharedHttpClient) -> Self {
        let network = ProviderConfig::default().with_http_client(http);
        Self { path, profile, network, known: Arc::default() }
    }

    fn provider(&self) -> ProfileFileCredentialsProvider {
        let files = EnvConfigFiles::builder().with_file(EnvConfigFileKind::Credentials, &self.path).build();
        let mut provider =
            ProfileFileCredentialsProvider::builder().configure(&self.network).profile_files(files);
        if let Some(profile) = &self.profile {
            provider = provider.profile_name(profile);
        }
        provider.build()
    }

    async fn find(&self) -> Provided {
        let stamp = stamp(&self.path)?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((of, keys)) = known
            && of == stamp
            && !is_over(&keys)
        {
            return Ok(keys);
        }
        let keys = self.provider().provide_credentials().await?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((stamp, keys.clone()));
        Ok(keys)
    }
}

fn stamp(path: &Path) -> Result<Stamp, CredentialsError> {
    let found = std::fs::metadata(path).map_err(|error| {
        CredentialsError::not_loaded(format!("the file {} cannot be read: {error}", path.display()))
    })?;
    Ok((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

fn is_over(keys: &Keys) -> bool {
    keys.expiry().is_some_and(|end| end <= SystemTime::now() + BEFORE_END)
}

impl ProvideCredentials for FileCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async move { self.find().await })
    }
}
