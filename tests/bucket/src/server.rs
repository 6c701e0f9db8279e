//! Serves the bucket, and makes requests fail as planned.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderMap};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::faults::{Fault, Op, Plan};
use crate::link::{InFlight, Traffic, Way, folder_of};
use crate::store::{Object, ObjectThaw, Store};
use crate::versions::Retention;

/// Name of the only bucket.
pub const BUCKET: &str = "holdfast";
/// The accepted access key.
pub const ACCESS_KEY: &str = "AKIDHOLDFAST";
/// Its secret.
pub const SECRET_KEY: &str = "not-a-secret-of-anything";

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, BoxError>;

#[derive(Debug)]
struct Shared {
    /// Number of calls of [`TestBucket::heal`].
    healed: watch::Sender<u64>,
    plans: Mutex<Vec<Plan>>,
    /// Objects that were once sent altered.
    flipped: Mutex<HashSet<String>>,
    asked: Mutex<Vec<(Op, String)>>,
    is_away: AtomicBool,
    latency_ms: AtomicU64,
    /// Limit in bytes a second, each way; 0: unlimited.
    rate: AtomicU64,
    incoming: Way,
    outgoing: Way,
    gets: InFlight,
}

/// A bucket that listens on a port of this machine until it is dropped.
#[derive(Debug)]
pub struct TestBucket {
    endpoint: String,
    store: Store,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
    /// The certificate of its own CA (PEM), if it uses TLS.
    ca: Option<String>,
}

impl TestBucket {
    /// Starts an empty bucket.
    pub fn start() -> Self {
        Self::with(Store::default())
    }

    /// Starts an empty bucket with Object Lock, and so with versions.
    pub fn start_with_object_lock() -> Self {
        let store = Store::default();
        store.0.lock().versions.is_on = true;
        Self::with(store)
    }

    /// Starts an empty bucket with HTTPS, whose certificate is of a CA that only [`TestBucket::ca`] returns.
    pub fn start_with_tls() -> Self {
        Self::listening(Store::default(), Some(tls()))
    }

    fn with(store: Store) -> Self {
        Self::listening(store, None)
    }

    fn listening(store: Store, tls: Option<(TlsAcceptor, String)>) -> Self {
        let (tls, ca) = tls.unzip();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let mut builder = S3ServiceBuilder::new(store.clone());
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = builder.build();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let endpoint = format!("{scheme}://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            healed: watch::Sender::new(0),
            plans: Mutex::default(),
            flipped: Mutex::default(),
            asked: Mutex::default(),
            is_away: AtomicBool::new(false),
            latency_ms: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            incoming: Way::default(),
            outgoing: Way::default(),
            gets: InFlight::default(),
        });
        runtime.spawn(listen(listener, tls, service, Arc::clone(&shared)));
        Self { endpoint, store, shared, runtime: Some(runtime), ca }
    }

    /// The certificate (PEM) of the CA to trust.
    ///
    /// # Panics
    /// When it uses plain HTTP.
    pub fn ca(&self) -> &str {
        self.ca.as_deref().expect("it speaks TLS")
    }

    /// URL of the service.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Makes the next `times` requests of `op` with `part` in their path fail.
    pub fn fail(&self, op: Op, part: &str, times: usize, fault: Fault) {
        self.shared.plans.lock().push(Plan { op, part: part.to_owned(), fault, times });
    }

    /// Cancels all planned failures, and accepts requests again.
    pub fn heal(&self) {
        self.shared.plans.lock().clear();
        self.shared.is_away.store(false, Ordering::Release);
        self.shared.healed.send_modify(|times| *times += 1);
    }

    /// Breaks all connections, and accepts no requests, until [`TestBucket::heal`].
    pub fn go_away(&self) {
        self.shared.is_away.store(true, Ordering::Release);
    }

    /// Delays every request by `latency`.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.latency_ms.store(latency.as_millis() as u64, Ordering::Release);
    }

    /// Limits the rate of each direction; 0: unlimited.
    pub fn set_rate(&self, bytes_per_sec: u64) {
        self.shared.rate.store(bytes_per_sec, Ordering::Release);
    }

    /// Returns the traffic so far.
    pub fn take_traffic(&self) -> Traffic {
        Traffic {
            received_bytes: self.shared.incoming.bytes(),
            sent_bytes: self.shared.outgoing.bytes(),
            gets_in_flight_max: self.shared.gets.take_most(),
        }
    }

    /// Requests so far, by the kind of blob they concerned; see [`folder_of`].
    pub fn by_folder(&self, op: Op) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        for (_, path) in self.shared.asked.lock().iter().filter(|(asked, _)| *asked == op) {
            *found.entry(folder_of(path).to_owned()).or_default() += 1;
        }
        found
    }

    /// Requests so far, failed ones included.
    pub fn count(&self, op: Op) -> u64 {
        self.requests(op, "") as u64
    }

    /// Requests with `part` in their path.
    pub fn requests(&self, op: Op, part: &str) -> usize {
        let asked = self.shared.asked.lock();
        asked.iter().filter(|(asked, path)| *asked == op && path.contains(part)).count()
    }

    /// The keys of all objects, in their order.
    pub fn keys(&self) -> Vec<String> {
        self.store.0.lock().objects.keys().cloned().collect()
    }

    /// Returns an object.
    pub fn object(&self, key: &str) -> Option<Object> {
        self.store.0.lock().objects.get(key).cloned()
    }

    /// Puts an object, replacing any other.
    pub fn replace(&self, key: &str, bytes: impl Into<Bytes>) {
        self.store.0.lock().put(key, bytes.into(), None, true);
    }

    /// Deletes an object out of band; with versions, a marker covers it.
    pub fn delete(&self, key: &str) {
        let mut state = self.store.0.lock();
        assert!(state.objects.contains_key(key), "no such object");
        state.delete(key);
    }

    /// Retention of an object.
    pub fn retention(&self, key: &str) -> Option<Retention> {
        self.object(key)?.retention
    }

    /// Overrides the retention of an object, which no request could.
    pub fn set_retention(&self, key: &str, retention: Option<Retention>) {
        self.store.0.lock().objects.get_mut(key).expect("no such object").retention = retention;
    }

    /// Ids of all versions of a key, markers included.
    pub fn versions(&self, key: &str) -> Vec<String> {
        self.store.0.lock().versions_of(key)
    }

    /// Sets the bucket's clock ahead of this machine's.
    pub fn set_ahead(&self, ahead: Duration) {
        self.store.0.lock().versions.ahead = ahead;
    }

    /// Moves an object to an archive, as a lifecycle rule does.
    pub fn archive(&self, key: &str) {
        self.set_class(key, "GLACIER");
    }

    /// Moves an object to another storage class, as a lifecycle rule does.
    pub fn set_class(&self, key: &str, class: &str) {
        self.store.0.lock().objects.get_mut(key).expect("no such object").set_class(class);
    }

    /// Objects for which a thaw was requested, done or not, with the request.
    pub fn thaws(&self) -> Vec<(String, ObjectThaw)> {
        let state = self.store.0.lock();
        let objects = state.objects.iter();
        objects.filter_map(|(key, object)| Some((key.clone(), object.thaw.clone()?))).collect()
    }

    /// Completes the requested thaws of objects with `part` in their key.
    pub fn finish_thaws(&self, part: &str) {
        let mut state = self.store.0.lock();
        for (_, object) in state.objects.iter_mut().filter(|(key, _)| key.contains(part)) {
            if let Some(thaw) = &mut object.thaw {
                thaw.is_done = true;
            }
        }
    }

    /// Removes all thawed copies, as when they expire.
    pub fn end_thaws(&self) {
        for object in self.store.0.lock().objects.values_mut() {
            object.thaw = None;
        }
    }

    /// Returns no checksums of objects from now on, as simple servers do.
    pub fn keep_no_checksums(&self) {
        self.store.0.lock().keeps_no_checksums = true;
    }

    /// Number of multipart uploads that were neither completed nor aborted.
    pub fn unfinished_uploads(&self) -> usize {
        self.store.0.lock().uploads()
    }
}

impl Drop for TestBucket {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Creates a certificate for this machine's address, and that of the CA that signed it.
fn tls() -> (TlsAcceptor, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key);
    (TlsAcceptor::from(Arc::new(config.unwrap())), ca.pem())
}

async fn listen(listener: TcpListener, tls: Option<TlsAcceptor>, service: S3Service, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        if shared.is_away.load(Ordering::Acquire) {
            continue;
        }
        let (service, shared, tls) = (service.clone(), Arc::clone(&shared), tls.clone());
        tokio::spawn(async move {
            match tls {
                // A client that does not trust the certificate disconnects.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, service, shared).await;
                    }
                }
                None => serve(stream, service, shared).await,
            }
        });
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: S3Service,
    shared: Arc<Shared>,
) {
    let answer = service_fn(move |request| answer(request, service.clone(), Arc::clone(&shared)));
    let http = hyper::server::conn::http1::Builder::new();
    // A connection broken by a fault ends with an error.
    let _ = http.serve_connection(TokioIo::new(stream), answer).await;
}

async fn answer(
    request: Request<Incoming>,
    service: S3Service,
    shared: Arc<Shared>,
) -> Result<Response<Body>, BoxError> {
    let op = Op::of(request.method(), request.uri());
    shared.asked.lock().push((op, request.uri().path().to_owned()));
    let _under_way = (op == Op::Get).then(|| shared.gets.begin());
    let rate = shared.rate.load(Ordering::Acquire);
    shared.incoming.pass(length(request.headers()), rate).await;
    let latency = shared.latency_ms.load(Ordering::Acquire);
    if latency > 0 {
        tokio::time::sleep(Duration::from_millis(latency)).await;
    }
    if shared.is_away.load(Ordering::Acquire) {
        return Err(broken());
    }
    let path = request.uri().path().to_owned();
    // From now on: [`TestBucket::heal`] counts even before the request is done.
    let mut healed = shared.healed.subscribe();
    let fault = shared.plans.lock().iter_mut().find(|plan| plan.is_of(op, &path)).map(|plan| {
        plan.times -= 1;
        plan.fault.clone()
    });
    match &fault {
        Some(Fault::Break) => return Err(broken()),
        Some(Fault::Refuse(status, code)) => {
            // The whole request is read, or the connection would break before the answer.
            let _ = request.into_body().collect().await;
            return Ok(refusal(*status, code));
        }
        Some(Fault::Answer(text)) => {
            let _ = request.into_body().collect().await;
            return Ok(said(200, (*text).to_owned()));
        }
        _ => {}
    }
    let answered = service.call(request.map(s3s::Body::from)).await.map_err(|error| format!("{error:?}"))?;
    if op != Op::Head {
        shared.outgoing.pass(length(answered.headers()), rate).await;
    }
    match fault {
        Some(Fault::LoseAnswer) => Err(broken()),
        Some(Fault::HoldAnswer) => {
            // Fails when the bucket is dropped, which ends this as well.
            let _ = healed.changed().await;
            Err(broken())
        }
        Some(Fault::Truncate) => {
            let (head, body) = answered.into_parts();
            let bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            let half = bytes.slice(..bytes.len() / 2);
            let pieces: [Result<Frame<Bytes>, BoxError>; 2] = [Ok(Frame::data(half)), Err(broken())];
            Ok(Response::from_parts(head, StreamBody::new(stream::iter(pieces)).boxed_unsync()))
        }
        Some(Fault::Flip) if shared.flipped.lock().insert(path) => {
            let (head, body) = answered.into_parts();
            let mut bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes().to_vec();
            let middle = bytes.len() / 2;
            if let Some(byte) = bytes.get_mut(middle) {
                *byte ^= 1;
            }
            let pieces: [Result<Frame<Bytes>, BoxError>; 1] = [Ok(Frame::data(bytes.into()))];
            Ok(Response::from_parts(head, StreamBody::new(stream::iter(pieces)).boxed_unsync()))
        }
        _ => Ok(answered
            .map(|body| body.map_err(|error| -> BoxError { error.to_string().into() }).boxed_unsync())),
    }
}

/// Length of the body by its header; 0: unknown.
fn length(headers: &HeaderMap) -> u64 {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0)
}

fn broken() -> BoxError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

fn refusal(status: u16, code: &str) -> Response<Body> {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>planned</Message></Error>"
    );
    said(status, text)
}

fn said(status: u16, text: String) -> Response<Body> {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(status).header("content-type", "application/xml").body(body).unwrap()
}
