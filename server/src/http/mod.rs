//! HTTPS: the REST API, the web UI, metrics, and health for load balancers and service managers. Agents get the part of the API
//! that is for tokens beside gRPC, on their own listener: the same handlers, checks, slots and bounds (`beside_calls`).
//!
//! A request passes, from the outside in: `slots` (a deadline, and a slot for a stranger) → `access` (who may,
//! by the headers alone; a slot for a caller) → a handler of `rest`, which reads its parameters (`query`), asks the
//! engine on a thread that may block, and answers with JSON or a `problem`. Any path without a route belongs to the
//! UI (`ui`).
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | the service: its state, the headers of every answer |
//! | `bounds` | every bound, with the arithmetic |
//! | `access` | who may ask for what: the check of the table of routes |
//! | `rest/` | the REST API, one file a resource |
//! | `slots` | how many requests at once; logins that are not complete |
//! | `download` | tables of any length |
//! | `ndjson` | lines of JSON, of what takes long or has no bound |
//! | `storage_cache` | what is costly to find out and therefore cached |
//! | `query`, `problem` | parameters, errors |
//! | `metrics` | `/healthz`, `/readyz`, `/metrics`, and the metrics of requests |
//! | `ui` | the page that shows the API's description; the web UI |

pub(crate) mod access;
pub(crate) mod bounds;
mod download;
mod metrics;
mod ndjson;
pub mod problem;
mod query;
pub(crate) mod rest;
mod slots;
mod storage_cache;
mod ui;

use std::convert::Infallible;
use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{any, get};
use holdfast_engine::catalog::{AttributedBy as Sharer, TotalsBy, token};
use holdfast_engine::ids::TokenId;
use holdfast_proto::api::LINES;
use parking_lot::Mutex;
use tokio::sync::watch;
use tower::Service;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::app::App;
use crate::config::Settings;
use crate::error::ServiceError;
use crate::http::bounds::{DOWNLOADS_MAX, REQUESTS_MAX};
use crate::http::slots::{Logins, Slots};
use crate::http::storage_cache::StorageCache;
use crate::limits::{ANSWERS_MAX, ANSWERS_PER_TOKEN_MAX, HEADER_DEADLINE, READ_DEADLINE};
use crate::net::{Listener, Patience, Protocol};
use crate::shares::Shares;

/// Answers below this many bytes are one packet either way.
const COMPRESS_ABOVE_BYTES: u64 = 1400;

/// Bounds on the cost of browsers below their requests, and how long they are waited for. The largest body is
/// [`bounds::BODY_MAX_BYTES`].
const PROTOCOL: Protocol = Protocol {
    http1: true,
    stream_window_bytes: 64 << 10,
    connection_window_bytes: 256 << 10,
    windows: None,
    frame_bytes: 16 << 10,
    streams_max: bounds::STREAMS_PER_CONNECTION_MAX,
    buffer_bytes: bounds::BUFFER_BYTES,
    chunk_bytes: bounds::CHUNK_BYTES,
    patience: Patience { stranger: None, stranger_idle: HEADER_DEADLINE, read: READ_DEADLINE },
};

/// Clients that a listener is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Browsers, monitoring and scripts.
    Browsers,
    /// Agents and the command line: bearer tokens only, with the version of the protocol that `Hello` settled.
    Agents,
}

/// Serves browsers and health checks until `stop`, then until the requests under way are done.
pub(crate) async fn serve(state: HttpState, listener: Listener, stop: watch::Receiver<bool>) {
    listener.serve(PROTOCOL, stop, router(state)).await;
}

/// The API for agents, beside `calls`, which get every request that is not below `/api`.
pub(crate) fn beside_calls<S>(state: HttpState, calls: S) -> Router
where
    S: Service<Request, Error = Infallible, Response: IntoResponse, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let nothing = any(async || problem::Problem::unknown_to_agents());
    let routes = api(&state, Audience::Agents).route("/api/{*path}", nothing);
    surrounded(state, routes).fallback_service(calls)
}

fn api(state: &HttpState, audience: Audience) -> Router<HttpState> {
    let rights = (state.clone(), audience, rest::endpoints());
    rest::router(audience).layer(from_fn_with_state(rights, access::check)).layer(
        CompressionLayer::new().gzip(true).compress_when(
            SizeAbove::new(COMPRESS_ABOVE_BYTES)
                .and(NotForContentType::SSE)
                // Lines go out as they are made.
                .and(NotForContentType::const_new(LINES))
                .and(NotSecret),
        ),
    )
}

/// Every route for browsers.
fn router(state: HttpState) -> Router {
    let api = api(&state, Audience::Browsers);
    let pages = ui::docs_router()
        .route("/healthz", get(metrics::alive))
        .route("/readyz", get(metrics::ready))
        .route("/metrics", get(metrics::scrape))
        .method_not_allowed_fallback(async || problem::Problem::method_not_allowed("GET, HEAD"));
    surrounded(state, Router::new().merge(api).merge(pages).fallback(ui::serve))
}

/// `routes`, with what is around all of them.
fn surrounded(state: HttpState, routes: Router<HttpState>) -> Router {
    let counters = state.app.metrics.counters();
    routes
        .layer(DefaultBodyLimit::max(bounds::BODY_MAX_BYTES))
        .layer(from_fn_with_state(state.clone(), slots::around))
        .layer(from_fn_with_state(counters, metrics::count_request))
        .with_state(state)
}

/// An answer that contains a secret is not compressed together with text that others may choose.
#[derive(Debug, Clone, Copy)]
struct NotSecret;

impl Predicate for NotSecret {
    fn should_compress<B>(&self, response: &axum::http::Response<B>) -> bool
    where
        B: http_body::Body,
    {
        response.extensions().get::<access::Secret>().is_none()
    }
}

/// Headers that every answer has, whatever it is.
///
/// | header | because |
/// |---|---|
/// | Content-Security-Policy | scripts, styles and data come from this server only; nothing inline, no frames |
/// | X-Content-Type-Options | a downloaded table must not be taken for a page |
/// | Referrer-Policy, Cross-Origin-* | names of VMs in URLs are not told to other sites |
/// | Permissions-Policy | none of these features is needed |
/// | Strict-Transport-Security | only with a certificate the administrator provided. With a self-signed one a browser ignores it at best; at worst (once the certificate was trusted by hand) it removes the button to continue when the certificate changes |
/// | Cache-Control | `no-store` unless the answer says otherwise: the API's answers are for one person at one time |
const ALWAYS: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
             font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static(
            "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=(), browsing-topics=()",
        ),
    ),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
];

/// A year, in seconds.
const STRICT: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Adds them. `strict_transport`: the certificate is one that browsers trust.
fn add_headers(headers: &mut HeaderMap, strict_transport: bool) {
    for (name, value) in ALWAYS {
        headers.insert(name, value);
    }
    if strict_transport {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, STRICT);
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// The value of a header, from text of this program itself.
///
/// # Errors
/// `Internal` when it contains characters that no header may contain.
fn header_value(text: &str) -> Result<HeaderValue, ServiceError> {
    HeaderValue::from_str(text)
        .map_err(|_| ServiceError::defect(format!("{text:?} cannot be a header's value")))
}

/// The state of the router; handlers that need no more than the [`App`] extract that.
#[derive(Debug, Clone)]
pub(crate) struct HttpState(Arc<Shared>);

/// State shared by requests over HTTPS beside the [`App`]: caches, slots, and locks.
#[derive(Debug)]
pub(crate) struct Shared {
    app: Arc<App>,
    /// Slots of requests that may be answered at once.
    slots: Slots,
    /// Logins that are not complete.
    logins: Arc<Logins>,
    /// Tables being downloaded.
    downloads: Arc<Shares<TokenId>>,
    /// Answers that are lines, being made.
    lines: Arc<Shares<TokenId>>,
    /// The latest statistics of containers.
    storage: StorageCache,
    /// Held while a token is revoked.
    revoking: Mutex<()>,
    /// Held during a scrape of the metrics: two at once would only look up the same figures twice.
    scraping: tokio::sync::Mutex<()>,
    /// True if any client may read the metrics.
    metrics_open: bool,
    /// True if browsers may be told never to connect without TLS, see `add_headers`.
    strict_transport: bool,
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
            lines: Shares::new(ANSWERS_MAX, ANSWERS_PER_TOKEN_MAX),
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
    async fn blocking<T: Send + 'static>(
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

/// Nouns that compression details can be added up by.
const GROUPS: [(&str, TotalsBy); 6] = [
    ("run", TotalsBy::Run),
    ("vm", TotalsBy::Vm),
    ("job", TotalsBy::Job),
    ("disk", TotalsBy::Disk),
    ("namespace", TotalsBy::Namespace),
    ("repository", TotalsBy::Repository),
];

/// Nouns that attributed bytes can be added up by.
const SHARERS: [(&str, Sharer); 3] =
    [("namespace", Sharer::Namespace), ("vm", Sharer::Vm), ("job", Sharer::Job)];

/// Spans of time: name and milliseconds; 0: all time.
const WINDOWS: [(&str, i64); 3] = [("24h", 24 * 3_600_000), ("7d", 7 * 24 * 3_600_000), ("all", 0)];

/// An action's name in answers and in the OpenAPI document.
const fn action(action: token::Action) -> &'static str {
    match action {
        token::Action::Backup => "backup",
        token::Action::ReadBack => "read_back",
        token::Action::Restore => "restore",
        token::Action::Catalog => "catalog",
        token::Action::Report => "report",
        token::Action::ManageTokens => "manage_tokens",
        token::Action::Operate => "operate",
        token::Action::Retain => "retain",
        token::Action::TakeOver => "take_over",
    }
}

/// Types that only describe: the fields themselves are strings that are one of a few words. The OpenAPI document lists the
/// words of each, taken from where they are used, so that generated clients such as the web UI's types know all of them.
macro_rules! words {
    ($($(#[doc = $about:literal])+ $name:ident = $words:expr;)+) => {$(
        $(#[doc = $about])+
        #[derive(Debug)]
        enum $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                one_of(concat!($($about),+), $words)
            }
        }

        impl ToSchema for $name {}
    )+};
}

words! {
    /// What a token is for
    Role = token::Role::ALL.map(token::Role::as_str);
    /// What a role may do
    Action = token::Action::ALL.map(action);
    /// What compression details are added up by
    GroupBy = GROUPS.map(|(word, _)| word);
    /// What attributed bytes are added up by
    AttributedBy = SHARERS.map(|(word, _)| word);
    /// A span of time up to now
    TimeWindow = WINDOWS.map(|(word, _)| word);
}

fn one_of(about: &str, words: impl IntoIterator<Item = &'static str>) -> RefOr<Schema> {
    let schema = ObjectBuilder::new().schema_type(Type::String).description(Some(about.trim()));
    schema.enum_values(Some(words)).into()
}
