//! Requests: their runtime, time limits and counts.

use std::collections::HashMap;
use std::future::Future;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use aws_config::BehaviorVersion;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    Credentials as Keys, IdentityCache, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    SharedCredentialsProvider,
};
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use holdfast_volume::{TokenBucket, VolumeError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::config::{Credentials, OpenError, S3Config};
use crate::credentials::FileCredentials;
use crate::error::{Answer, Call, classify, refused};

/// Requests mostly wait for the network, so a few threads suffice for many of them.
const THREADS: usize = 2;

/// Time limit for connecting.
const CONNECT: Duration = Duration::from_secs(10);

/// Time limit of a request with a small or no body.
const REQUEST: Duration = Duration::from_secs(30);

/// Slowest acceptable transfer rate: 40 MiB take 2.7 minutes and half a minute.
const BYTES_PER_SEC_MIN: u64 = 256 << 10;

/// Metadata key of the writer's number in objects (`x-amz-meta-…`).
const WRITER: &str = "holdfast-writer";

/// Region for services that have none.
const ANY_REGION: &str = "us-east-1";

/// Kind of a request, as services count and bill them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    Put,
    Get,
    Head,
    List,
    Delete,
    /// Restores an object from an archive.
    Restore,
}

impl RequestKind {
    pub const ALL: [Self; 6] = [Self::Put, Self::Get, Self::Head, Self::List, Self::Delete, Self::Restore];

    /// Name in lower case.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Head => "head",
            Self::List => "list",
            Self::Delete => "delete",
            Self::Restore => "restore",
        }
    }
}

/// Counters of requests, including failed ones. Each number only grows.
#[derive(Debug, Default)]
pub struct RequestCounts {
    made: [AtomicU64; RequestKind::ALL.len()],
    failed: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl RequestCounts {
    fn counter(&self, kind: RequestKind) -> &AtomicU64 {
        let [put, get, head, list, delete, restore] = &self.made;
        match kind {
            RequestKind::Put => put,
            RequestKind::Get => get,
            RequestKind::Head => head,
            RequestKind::List => list,
            RequestKind::Delete => delete,
            RequestKind::Restore => restore,
        }
    }

    /// Number of requests of a kind.
    pub fn made(&self, kind: RequestKind) -> u64 {
        self.counter(kind).load(Ordering::Relaxed)
    }

    /// Number of requests that were refused or not answered.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Bytes of blobs sent.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of blobs received.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn failed_one(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The SDK's client, and its runtime.
#[derive(Debug)]
pub(crate) struct S3Client {
    /// `None` once it is being dropped.
    runtime: Option<Runtime>,
    pub(crate) sdk: Client,
    pub(crate) config: S3Config,
    pub(crate) counts: Arc<RequestCounts>,
    /// Cancels requests that write.
    stop: watch::Sender<bool>,
    /// Attached to all objects written; 0: none.
    writer: AtomicU64,
    pace: Pace,
}

/// Limits the rate of requests.
#[derive(Debug)]
struct Pace {
    per_sec: Option<NonZeroU64>,
    begun: Instant,
    bucket: TokenBucket,
}

impl Pace {
    fn of(config: &S3Config) -> Self {
        Self { per_sec: config.requests_per_sec, begun: Instant::now(), bucket: TokenBucket::default() }
    }

    /// Returns how long the next request has to wait.
    fn next(&self) -> Duration {
        self.per_sec.map_or(Duration::ZERO, |per_sec| self.bucket.take(1, per_sec, self.begun.elapsed()))
    }
}

impl S3Client {
    pub(crate) fn open(config: S3Config) -> Result<Self, OpenError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("s3")
            .enable_all()
            .build()
            .map_err(OpenError::Threads)?;
        let sdk = runtime.block_on(sdk(&config))?;
        let pace = Pace::of(&config);
        Ok(Self {
            runtime: Some(runtime),
            sdk,
            config,
            counts: Arc::default(),
            stop: watch::Sender::new(false),
            writer: AtomicU64::new(0),
            pace,
        })
    }

    /// Attaches this number to all objects written from now on.
    pub(crate) fn sign_with(&self, number: u64) {
        self.writer.store(number, Ordering::Relaxed);
    }

    /// Metadata of new objects: the number of the writer.
    pub(crate) fn metadata(&self) -> Option<HashMap<String, String>> {
        let number = self.writer.load(Ordering::Relaxed);
        (number > 0).then(|| HashMap::from([(WRITER.to_owned(), number.to_string())]))
    }

    /// Describes a call, for messages.
    pub(crate) fn call(
        &self,
        action: &'static str,
        name: &dyn std::fmt::Display,
        intent: crate::error::Intent,
    ) -> Call {
        let endpoint = self.config.endpoint.clone().unwrap_or_else(|| match &self.config.region {
            Some(region) => format!("Amazon S3 in {region}"),
            None => "Amazon S3".to_owned(),
        });
        let bucket = self.config.bucket.clone();
        Call { action, name: name.to_string(), intent, bucket, endpoint, class: None }
    }

    /// Cancels requests in progress that write, and refuses further ones.
    pub(crate) fn stop_writing(&self) {
        self.stop.send_replace(true);
    }

    /// Sends a request and waits for its answer, on any thread: `bytes` of blobs are sent or received.
    pub(crate) fn request<T, E>(
        &self,
        kind: RequestKind,
        call: &Call,
        bytes: u64,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send + 'static,
    ) -> Result<T, VolumeError>
    where
        T: Send + 'static,
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let outcome = self.wait(kind, call, bytes, async move { request.await.map_err(Box::new) })?;
        match outcome {
            Ok(value) => {
                if kind == RequestKind::Put {
                    self.counts.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                Ok(value)
            }
            Err(error) => {
                self.counts.failed_one();
                Err(refused(call, *error))
            }
        }
    }

    /// Waits for the result of a request, within its time limit.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        kind: RequestKind,
        call: &Call,
        bytes: u64,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, VolumeError> {
        let failed = |answer: &Answer, why: &'static str| {
            self.counts.failed_one();
            Err(classify(call, answer, None, why.into()))
        };
        let Some(runtime) = &self.runtime else { return failed(&Answer::NotSent, "it is closed") };
        self.counts.counter(kind).fetch_add(1, Ordering::Relaxed);
        let limit = REQUEST.saturating_add(Duration::from_secs(bytes / BYTES_PER_SEC_MIN));
        let (mut stop, turn) = (self.stop.subscribe(), self.pace.next());
        let may_be_stopped = call.intent == crate::error::Intent::Write;
        let (answered, answer) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            let stopped = async {
                if may_be_stopped {
                    // Cannot fail while the client, which waits for this, exists.
                    let _ = stop.wait_for(|stop| *stop).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            // The time limit starts with its turn.
            let work = async {
                tokio::time::sleep(turn).await;
                tokio::time::timeout(limit, work).await
            };
            let outcome = tokio::select! {
                outcome = work => outcome.map_err(|_| "it took too long"),
                () = stopped => Err("the server is stopping"),
            };
            // The waiting thread may be gone.
            let _ = answered.send(outcome);
        });
        match answer.recv() {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(why)) => failed(&Answer::None, why),
            Err(_) => failed(&Answer::None, "the request ended with an internal error"),
        }
    }

    /// Starts a task without waiting for its result.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            let turn = self.pace.next();
            runtime.spawn(async move {
                tokio::time::sleep(turn).await;
                work.await;
            });
        }
    }
}

impl Drop for S3Client {
    fn drop(&mut self) {
        // Safe on a thread of another runtime, which must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn sdk(config: &S3Config) -> Result<Client, OpenError> {
    let mut tls = TlsContext::builder();
    if let Some(ca) = &config.ca {
        tls = tls.with_trust_store(TrustStore::empty().with_pem_certificate(ca.as_slice()));
    }
    let tls = tls.build().map_err(|error| OpenError::Ca(error.to_string()))?;
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
        .tls_context(tls)
        .build_https();
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http.clone());
    if let Some(region) = &config.region {
        loader = loader.region(Region::new(region.clone()));
    } else if config.endpoint.is_some() {
        loader = loader.region(Region::new(ANY_REGION));
    }
    loader = match &config.credentials {
        Credentials::Chain { profile } => match profile {
            Some(profile) => loader.profile_name(profile),
            None => loader,
        },
        Credentials::File { path, profile } => {
            let file = FileCredentials::new(path.clone(), profile.clone(), http);
            // The provider itself keeps its credentials for as long as the file is unchanged.
            loader.credentials_provider(file).identity_cache(IdentityCache::no_cache())
        }
        Credentials::Keys { id, secret } => {
            let keys = Keys::new(id, secret, None, None, "settings");
            loader.credentials_provider(SharedCredentialsProvider::new(keys))
        }
    };
    let shared = loader.load().await;
    let mut builder = aws_sdk_s3::config::Builder::from(&shared)
        // A volume does not retry: its decorators do.
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECT).build())
        // This client sets checksums explicitly.
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .force_path_style(config.path_style);
    if shared.region().is_none() {
        builder = builder.region(Region::new(ANY_REGION));
    }
    if let Some(endpoint) = &config.endpoint {
        builder = builder.endpoint_url(endpoint);
    }
    Ok(Client::from_conf(builder.build()))
}
