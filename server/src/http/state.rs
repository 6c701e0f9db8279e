//! What requests over HTTPS share beside the [`App`]: caches, slots, and locks.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::FromRef;
use holdfast_engine::ids::TokenId;
use parking_lot::Mutex;

use super::bounds::{DOWNLOADS_MAX, REQUESTS_MAX};
use super::logins::Logins;
use super::slots::Slots;
use super::storage_cache::StorageCache;
use crate::app::App;
use crate::config::Settings;
use crate::error::ServiceError;
use crate::shares::Shares;

/// The state of the router; handlers that need no more than the [`App`] extract that.
#[derive(Debug, Clone)]
pub(crate) struct HttpState(Arc<Shared>);

/// See [`HttpState`].
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) app: Arc<App>,
    /// For requests that may be answered at once.
    pub(super) slots: Slots,
    /// Logins that are not complete.
    pub(super) logins: Arc<Logins>,
    /// Tables being downloaded.
    pub(super) downloads: Arc<Shares<TokenId>>,
    /// What was last found out about containers.
    pub(super) storage: StorageCache,
    /// Held while a token is revoked.
    pub(super) revoking: Mutex<()>,
    /// Held during a scrape of the metrics: two at once would only look up the same figures twice.
    pub(super) scraping: tokio::sync::Mutex<()>,
    /// Whether any client may read the metrics.
    pub(super) metrics_open: bool,
    /// Whether browsers may be told never to connect without TLS, see [`headers`](super::headers).
    pub(super) strict_transport: bool,
}

impl HttpState {
    /// Over `app`, as the settings say.
    pub(crate) fn new(app: Arc<App>, settings: &Settings) -> Self {
        let answers = REQUESTS_MAX.min(app.budget.answers as usize);
        Self(Arc::new(Shared {
            app,
            slots: Slots::new(answers),
            logins: Arc::default(),
            downloads: Shares::halves(DOWNLOADS_MAX),
            storage: StorageCache::default(),
            revoking: Mutex::default(),
            scraping: tokio::sync::Mutex::default(),
            metrics_open: settings.metrics_open,
            strict_transport: settings.tls_cert.is_some(),
        }))
    }

    /// As [`App::blocking`], for work that needs this state.
    ///
    /// # Errors
    /// The errors of `work`; `Internal` when it panics.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let state = self.clone();
        self.app.blocking(move |_| work(&state)).await
    }
}

impl Deref for HttpState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl FromRef<HttpState> for Arc<App> {
    fn from_ref(state: &HttpState) -> Self {
        Self::clone(&state.app)
    }
}
