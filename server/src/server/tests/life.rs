//! The first start, shutdown, and tokens that are created and revoked meanwhile.

use std::os::unix::fs::PermissionsExt as _;

use holdfast_engine::catalog::{Catalog, RowStatus};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::*;
use crate::jobs::JobState;
use crate::repository::catalog_path;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_start_creates_what_later_starts_keep() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_in(folder.path(), |_| {}).await.unwrap();
    assert!(server.first_token_created);
    let (fingerprint, repository) = (server.fingerprint.clone(), server.app().engine.repository_id());
    let path = folder.path().join(FIRST_TOKEN_FILE);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let token = fs::read_to_string(&path).unwrap();
    server.stop().await.unwrap();

    let server = start_in(folder.path(), |_| {}).await.unwrap();
    assert!(!server.first_token_created);
    assert_eq!((&server.fingerprint, server.app().engine.repository_id()), (&fingerprint, repository));
    assert_eq!(fs::read_to_string(&path).unwrap(), token);
    server.stop().await.unwrap();

    // A token file that was removed is not created again.
    fs::remove_file(&path).unwrap();
    let server = start_in(folder.path(), |_| {}).await.unwrap();
    assert!(!path.exists());
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_a_folder() {
    let fixture = Fixture::start().await;
    let error = start_in(fixture.folder.path(), |_| {}).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Busy);
    assert!(error.to_string().contains("in use"), "{error}");
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_named() {
    let fixture = Fixture::start().await;
    let (folder, taken) = (tempfile::tempdir().unwrap(), fixture.server.grpc_address);
    let error = start_in(folder.path(), |settings| settings.grpc = taken).await.unwrap_err();
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_tells_open_streams_and_gives_sessions_up() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let session = admin.start("", "vm").await.unwrap().session_id;
    let (messages, line) = mpsc::channel(4);
    messages.send(ingest::open(&session, 0)).await.unwrap();
    let mut answers =
        admin.backup().ingest(admin.request(ReceiverStream::new(line))).await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap();
    let Fixture { folder, server } = fixture;
    let stopped = tokio::spawn(server.stop());
    let told = loop {
        match answers.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended without a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(ErrorCode::of_status(&told), Some(ErrorCode::Unavailable), "{told:?}");
    stopped.await.unwrap().unwrap();

    let server = start_in(folder.path(), |_| {}).await.unwrap();
    let fixture = Fixture { folder, server };
    let admin = fixture.admin().await;
    let rows = admin.report("").await.unwrap();
    assert_eq!(rows.iter().map(|row| row.status).collect::<Vec<_>>(), [RowStatus::Aborted]);
    admin.back_up("", "vm").await.unwrap();
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_come_and_go_while_the_server_runs() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    // As the token commands do it: over a connection of its own.
    let path = catalog_path(fixture.folder.path());
    let beside = Catalog::open(&path, Arc::new(SystemClock)).unwrap();
    let (text, id, hash) = token::new_token(&SystemClock).unwrap();
    let spec = TokenSpec {
        id,
        name: "late".into(),
        role: Role::Backup,
        namespaces: vec![],
        owner: "default".into(),
        vm_patterns: vec![],
        expires_ms: None,
    };
    beside.create_token(&spec, &hash).unwrap();
    let late = Client { token: text.as_str().into(), ..admin.clone() };
    let session = late.start("", "vm").await.unwrap().session_id;
    let (messages, line) = mpsc::channel(4);
    messages.send(ingest::open(&session, 0)).await.unwrap();
    let mut answers =
        late.backup().ingest(late.request(ReceiverStream::new(line))).await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap();

    beside.revoke_token(id).unwrap();
    assert_eq!(code(late.keep_alive(&session).await), ErrorCode::Unauthenticated);
    // The open stream ends with the next round of the job that looks for them.
    let told = loop {
        if let Err(status) = answers.message().await {
            break status;
        }
    };
    assert_eq!(ErrorCode::of_status(&told), Some(ErrorCode::Unauthenticated), "{told:?}");
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn background_jobs_are_listed_and_end_with_the_server() {
    let fixture = Fixture::start().await;
    let app = Arc::clone(fixture.server.app());
    let names: Vec<_> = app.jobs.list().iter().map(|job| job.name).collect();
    assert_eq!(
        names,
        [
            "expired-leases",
            "ended-access",
            "ended-logins",
            "audit-counts",
            "certificate",
            "audit",
            "damage",
            "index-repair",
            "catalog-check",
            "restore-points",
            "retention",
            "damage-report",
            "scrub",
            "parity",
            "catalog-snapshots",
            "space-history"
        ]
    );
    fixture.server.stop().await.unwrap();
    for job in app.jobs.list() {
        assert!(matches!(job.state, JobState::Stopped | JobState::Finished), "{job:?}");
        assert_eq!(job.failures, 0, "{job:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_does_not_hold_up_others() {
    let fixture = Fixture::start().await;
    let _silent = TcpStream::connect(fixture.server.grpc_address).await.unwrap();
    let _silent = TcpStream::connect(fixture.server.http_address).await.unwrap();
    fixture.admin().await.hello().await.unwrap();
    assert_eq!(fixture.get("", "/healthz").await.status, 200);
    fixture.server.stop().await.unwrap();
}

/// One HTTPS request, answered in full, with a bearer token unless it is empty.
pub(super) async fn get_with(fixture: &Fixture, path: &str, token: &str) -> String {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    let certificate = fixture.folder.path().join("tls/cert.pem");
    roots.add(rustls::pki_types::CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tcp = TcpStream::connect(fixture.server.http_address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap();
    let authorization =
        if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_commit_under_way_is_waited_for() {
    let fixture = Fixture::start().await;
    let app = Arc::clone(fixture.server.app());
    let ends = |app: &Arc<App>| {
        let app = Arc::clone(app);
        let mut calls = JoinSet::new();
        calls.spawn(std::future::pending::<()>());
        tokio::spawn(async move { end_calls(&app, calls).await })
    };
    tokio::time::pause();
    let committing = app.begin_commit();
    let with_commit = ends(&app);
    tokio::task::yield_now().await;
    for _ in 0..10 {
        tokio::time::advance(SHUTDOWN_GRACE / 4).await;
        tokio::task::yield_now().await;
        assert!(!with_commit.is_finished());
    }
    drop(committing);
    with_commit.await.unwrap();
    // Other calls are not.
    let begun = tokio::time::Instant::now();
    ends(&app).await.unwrap();
    assert!(begun.elapsed() < COMMIT_GRACE);
    tokio::time::resume();
    fixture.server.stop().await.unwrap();
}

#[test]
fn an_unfinished_first_start_is_finished_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::create(&catalog_path(folder.path()), Arc::new(SystemClock)).unwrap();
    let path = folder.path().join(FIRST_TOKEN_FILE);
    // The file of a token that the catalog does not have.
    fs::write(&path, "hf_old").unwrap();
    assert!(ensure_first_token(&catalog, &SystemClock, &path).unwrap());
    let text = fs::read_to_string(&path).unwrap();
    let presented: token::PresentedToken = text.trim().parse().unwrap();
    assert!(presented.matches(&catalog.token(presented.id()).unwrap().unwrap().1));
    assert!(!ensure_first_token(&catalog, &SystemClock, &path).unwrap());
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

/// `mkdir` makes folders that everyone may read, and with them names, figures and hashes of tokens.
#[tokio::test(flavor = "multi_thread")]
async fn a_data_folder_that_was_open_to_others_is_closed() {
    use std::os::unix::fs::PermissionsExt as _;
    for (before, after) in [(0o755, 0o750), (0o777, 0o750), (0o700, 0o700), (0o750, 0o750)] {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(before)).unwrap();
        let server = start_in(folder.path(), |_| {}).await.unwrap();
        let mode = fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, after, "{before:o}");
        server.stop().await.unwrap();
    }
}
