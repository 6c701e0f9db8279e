//! A whole server in this process: real TLS, real catalog, real engine, on ports it picks.

mod deadlines;
mod lanes;
mod life;
mod limits;
mod lives;
mod manage;
mod metrics;
mod owners;
mod protocol;
mod queue;
mod readiness;
mod rest;
mod roles;
mod unread;

use std::collections::BTreeMap;
use std::fs;

use bytes::Bytes;
use holdfast_engine::catalog::PageRequest;
use holdfast_engine::clock::SystemClock;
use holdfast_proto::api::{Backup, DetailBatch, DetailRow, Keyset, LINES, Line, PREFIX, Problem};
use holdfast_proto::size::ByteSize;
use holdfast_proto::v1;
use holdfast_proto::v1::backup_client::BackupClient;
use holdfast_proto::v1::restore_client::RestoreClient;
use holdfast_proto::version::{PROTOCOL_MAX, PROTOCOL_METADATA};
use http_body_util::{BodyExt as _, Full};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_stream::{Stream, StreamExt as _};
use tonic::codegen::http;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};
use tower::{Service as _, ServiceExt as _};

use super::*;
use crate::config::{Reserve, Settings};

/// Disks of the tests: one extent and a bit, all zeros.
const DISK_BYTES: u64 = (4 << 20) + 4096;

struct Fixture {
    folder: tempfile::TempDir,
    server: Server,
}

impl Fixture {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = start_in(folder.path(), change).await.unwrap();
        Self { folder, server }
    }

    fn admin_token(&self) -> String {
        fs::read_to_string(self.folder.path().join(FIRST_TOKEN_FILE)).unwrap().trim().to_owned()
    }

    fn catalog(&self) -> &Catalog {
        self.server.app().catalog()
    }

    /// Counts the events in the audit log, by action.
    fn audited(&self) -> BTreeMap<String, u64> {
        self.server.app().auth.audit_log().flush().unwrap();
        let log = self.catalog().list_audit(PageRequest { size: 1000, token: "" }).unwrap();
        assert_eq!(log.next, None);
        let mut counts = BTreeMap::new();
        for record in log.items {
            *counts.entry(record.entry.action).or_default() += record.count;
        }
        counts
    }

    /// Actions of which the audit log has more events than `before`.
    fn audited_since(&self, before: &BTreeMap<String, u64>) -> Vec<String> {
        let now = self.audited().into_iter();
        now.filter(|(action, count)| before.get(action) != Some(count)).map(|(action, _)| action).collect()
    }

    /// A token for `namespaces`, which are created. Its owner is that of the first token.
    fn token(&self, role: Role, namespaces: &[&str]) -> String {
        let (text, id, hash) = token::new_token(&SystemClock).unwrap();
        let namespaces =
            namespaces.iter().map(|name| self.catalog().ensure_namespace(name).unwrap().id).collect();
        let spec = TokenSpec {
            id,
            name: id.to_string(),
            role,
            namespaces,
            owner: "admin".into(),
            vm_patterns: vec![],
            expires_ms: None,
        };
        self.catalog().create_token(&spec, &hash).unwrap();
        text.as_str().to_owned()
    }

    /// A token of `owner` for VMs of these names, in every namespace.
    fn token_of(&self, role: Role, owner: &str, vms: &[&str]) -> String {
        let (text, id, hash) = token::new_token(&SystemClock).unwrap();
        let (name, namespaces, owner) = (format!("{owner} {id}"), vec![], owner.to_owned());
        let vm_patterns = vms.iter().map(|vm| (*vm).to_owned()).collect();
        let spec = TokenSpec { id, name, role, namespaces, owner, vm_patterns, expires_ms: None };
        self.catalog().create_token(&spec, &hash).unwrap();
        text.as_str().to_owned()
    }

    /// One connection.
    async fn client(&self, token: &str) -> Client {
        let certificate = fs::read(self.folder.path().join("tls/cert.pem")).unwrap();
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(certificate))
            .domain_name("localhost");
        let endpoint = Endpoint::from_shared(format!("https://{}", self.server.grpc_address)).unwrap();
        let channel = endpoint.tls_config(tls).unwrap().connect().await.unwrap();
        Client { channel, token: token.to_owned(), protocol: PROTOCOL_MAX.to_string() }
    }

    async fn admin(&self) -> Client {
        self.client(&self.admin_token()).await
    }
}

async fn start_in(folder: &Path, change: impl FnOnce(&mut Settings)) -> Result<Server, StartError> {
    start_at(folder, Arc::new(SystemClock), change).await
}

/// As [`start_in`], by this clock.
async fn start_at(
    folder: &Path,
    clock: Arc<dyn Clock>,
    change: impl FnOnce(&mut Settings),
) -> Result<Server, StartError> {
    let mut settings = Settings {
        data_dir: folder.to_path_buf(),
        grpc: SocketAddr::from(([127, 0, 0, 1], 0)),
        http: SocketAddr::from(([127, 0, 0, 1], 0)),
        reserve: Reserve::Bytes(ByteSize(0)),
        ..Settings::default()
    };
    change(&mut settings);
    Server::start(&settings, clock).await
}

/// A client without any logic: every call as it is.
#[derive(Clone)]
struct Client {
    channel: Channel,
    token: String,
    protocol: String,
}

impl Client {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let mut insert = |key, value: &str| {
            if !value.is_empty() {
                request.metadata_mut().insert(key, MetadataValue::try_from(value).unwrap());
            }
        };
        insert("authorization", &self.bearer());
        insert(PROTOCOL_METADATA, &self.protocol);
        request
    }

    fn backup(&self) -> BackupClient<Channel> {
        BackupClient::new(self.channel.clone())
    }

    fn restore(&self) -> RestoreClient<Channel> {
        RestoreClient::new(self.channel.clone())
    }

    async fn hello(&self) -> Result<v1::HelloResponse, Status> {
        let message = v1::HelloRequest { min_protocol: 1, max_protocol: 9, client_version: "test".into() };
        Ok(self.backup().hello(self.request(message)).await?.into_inner())
    }

    async fn start(&self, namespace: &str, vm: &str) -> Result<v1::StartResponse, Status> {
        self.start_with(namespace, vm, false).await
    }

    /// Takes over.
    async fn start_over(&self, namespace: &str, vm: &str) -> Result<v1::StartResponse, Status> {
        self.start_with(namespace, vm, true).await
    }

    async fn start_with(
        &self,
        namespace: &str,
        vm: &str,
        take_over: bool,
    ) -> Result<v1::StartResponse, Status> {
        let message = v1::StartRequest {
            take_over,
            namespace: namespace.into(),
            vm: vm.into(),
            job: "nightly".into(),
            disks: vec![v1::DiskSpec { name: "root".into(), size_bytes: DISK_BYTES }],
            client_host: "test".into(),
            ..v1::StartRequest::default()
        };
        Ok(self.backup().start(self.request(message)).await?.into_inner())
    }

    async fn keep_alive(&self, session: &str) -> Result<u32, Status> {
        let message = v1::KeepAliveRequest { session_id: session.into() };
        Ok(self.backup().keep_alive(self.request(message)).await?.into_inner().lease_secs)
    }

    async fn commit(&self, session: &str) -> Result<v1::CommitResponse, Status> {
        let message = v1::CommitRequest { session_id: session.into() };
        Ok(self.backup().commit(self.request(message)).await?.into_inner())
    }

    async fn abort(&self, session: &str) -> Result<(), Status> {
        let message = v1::AbortRequest { session_id: session.into(), reason: "test".into() };
        self.backup().abort(self.request(message)).await.map(|_| ())
    }

    /// Sends `messages` and collects the answers up to the end or the first error.
    async fn ingest(
        &self,
        messages: impl Stream<Item = v1::IngestRequest> + Send + 'static,
    ) -> Result<Vec<ingest::Answer>, Status> {
        let mut answers = self.backup().ingest(self.request(messages)).await?.into_inner();
        let mut collected = Vec::new();
        while let Some(answer) = answers.message().await? {
            collected.extend(answer.kind);
        }
        Ok(collected)
    }

    /// Backs up an empty disk.
    async fn back_up(&self, namespace: &str, vm: &str) -> Result<v1::CommitResponse, Status> {
        let session = self.start(namespace, vm).await?.session_id;
        let messages = [ingest::open(&session, 0), ingest::zeros(), ingest::finish()];
        let answers = self.ingest(tokio_stream::iter(messages)).await?;
        assert!(matches!(answers.last(), Some(ingest::Answer::Finished(_))), "{answers:?}");
        self.commit(&session).await
    }

    async fn read_disk(&self, backup: &str) -> Result<Vec<v1::ReadDiskResponse>, Status> {
        let message = v1::ReadDiskRequest {
            backup_id: backup.into(),
            disk: "root".into(),
            ..v1::ReadDiskRequest::default()
        };
        self.restore().read_disk(self.request(message)).await?.into_inner().collect().await
    }

    async fn read_range(&self, backup: &str, length: u64) -> Result<Vec<v1::ReadRangeResponse>, Status> {
        let message =
            v1::ReadRangeRequest { backup_id: backup.into(), disk: "root".into(), offset: 0, length };
        self.restore().read_range(self.request(message)).await?.into_inner().collect().await
    }

    /// Opens a disk, and reads parts of it.
    async fn read_parts(
        &self,
        backup: &str,
        parts: &[v1::ReadPart],
    ) -> Result<Vec<v1::ReadDiskResponse>, Status> {
        use v1::read_parts_request::Kind;
        let open = v1::ReadDiskRequest {
            backup_id: backup.into(),
            disk: "root".into(),
            ..v1::ReadDiskRequest::default()
        };
        let kinds = std::iter::once(Kind::Open(open)).chain(parts.iter().copied().map(Kind::Part));
        let messages: Vec<_> = kinds.map(|kind| v1::ReadPartsRequest { kind: Some(kind) }).collect();
        let request = self.request(tokio_stream::iter(messages));
        self.restore().read_parts(request).await?.into_inner().collect().await
    }

    async fn list_backups(&self, namespace: &str) -> Result<Vec<Backup>, Status> {
        let path = format!("/backups?page_size=1000&namespace={namespace}");
        Ok(self.json::<Keyset<Backup>>("GET", &path, None).await?.items)
    }

    async fn get_backup(&self, namespace: &str, backup: &str, vm: &str) -> Result<Backup, Status> {
        self.json("GET", &format!("/backups/{backup}?namespace={namespace}&vm={vm}"), None).await
    }

    async fn record_verification(&self, backup: &str, damage: &str) -> Result<(), Status> {
        let report = json!({ "ok": damage.is_empty(), "detail": damage, "bytes": 7 });
        self.json::<Value>("POST", &format!("/backups/{backup}/verifications"), Some(report)).await.map(drop)
    }

    async fn report_chunks(&self, backup: &str) -> Result<(), Status> {
        let report = json!({ "chunks": [] });
        self.json::<Value>("POST", &format!("/backups/{backup}/false-chunks"), Some(report)).await.map(drop)
    }

    async fn report(&self, namespace: &str) -> Result<Vec<DetailRow>, Status> {
        let batches: Vec<DetailBatch> =
            self.lines("GET", &format!("/details?namespace={namespace}"), None).await?;
        Ok(batches.into_iter().flat_map(|batch| batch.rows).collect())
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, Status> {
        Ok(serde_json::from_slice(&self.api(method, path, "application/json", body).await?).unwrap())
    }

    /// The items of an answer of the API in lines, by the connection that carries calls.
    async fn lines<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Result<Vec<T>, Status> {
        let text = self.api(method, path, LINES, body).await?;
        let item = |line: &[u8]| match serde_json::from_slice(line).unwrap() {
            Line::Item(item) => Ok(item),
            Line::Problem(problem) => Err(problem.code.status(problem.detail)),
        };
        text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(item).collect()
    }

    /// An answer of the API; a refusal is the status that a call would have.
    async fn api(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        body: Option<Value>,
    ) -> Result<Bytes, Status> {
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("{PREFIX}{path}"))
            .header("accept", accept)
            .header("content-type", "application/json");
        for (name, value) in [("authorization", self.bearer()), (PROTOCOL_METADATA, self.protocol.clone())] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = request.body(tonic::body::Body::new(Full::new(Bytes::from(body)))).unwrap();
        let mut channel = self.channel.clone();
        let answer = channel.ready().await.unwrap().call(request).await.unwrap();
        let succeeded = answer.status().is_success();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        if succeeded {
            return Ok(text);
        }
        let problem: Problem = serde_json::from_slice(&text).unwrap();
        Err(problem.code.status(problem.detail))
    }

    fn bearer(&self) -> String {
        if self.token.is_empty() { String::new() } else { format!("Bearer {}", self.token) }
    }
}

/// Messages of an ingest stream.
mod ingest {
    use holdfast_proto::v1::ingest_request::Kind;
    use holdfast_proto::v1::{ExtentRange, Extents, FinishStream, IngestRequest, OpenStream, Query};

    pub(super) use holdfast_proto::v1::ingest_response::Kind as Answer;

    fn message(kind: Kind) -> IngestRequest {
        IngestRequest { order: 0, kind: Some(kind) }
    }

    pub(super) fn open(session: &str, disk: u32) -> IngestRequest {
        message(Kind::Open(OpenStream { session_id: session.into(), disk, ..OpenStream::default() }))
    }

    /// By an agent that waits for its turn.
    pub(super) fn open_in_turn(session: &str, disk: u32) -> IngestRequest {
        let open = OpenStream { session_id: session.into(), disk, ..OpenStream::default() };
        message(Kind::Open(OpenStream { takes_queued: true, ..open }))
    }

    /// The whole disk is zero.
    pub(super) fn zeros() -> IngestRequest {
        let zero = vec![ExtentRange { first: 0, count: 2 }];
        message(Kind::Extents(Extents { zero, ..Extents::default() }))
    }

    /// Asks about one chunk.
    pub(super) fn query() -> IngestRequest {
        message(Kind::Query(Query { sequence: 0, fingerprints: vec![1; 32].into() }))
    }

    pub(super) fn finish() -> IngestRequest {
        message(Kind::Finish(FinishStream { read_bytes: super::DISK_BYTES, ..FinishStream::default() }))
    }
}

/// The code of a refusal; panics when there was none or it is not one of this server's.
fn code<T: std::fmt::Debug>(result: Result<T, Status>) -> ErrorCode {
    let status = result.unwrap_err();
    ErrorCode::of_status(&status).unwrap_or_else(|| panic!("not one of ours: {status:?}"))
}
