//! Calls and streams, valid and invalid.

use std::time::Duration;

use bytes::Bytes;
use holdfast_engine::catalog::PageRequest;
use holdfast_proto::RETRY_AFTER_METADATA;
use holdfast_proto::limits::{MESSAGE_MAX_BYTES, READ_RANGE_MAX_BYTES};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn hello_settles_version_parameters_and_scope() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let hello = admin.hello().await.unwrap();
    assert_eq!((hello.protocol, hello.role.as_str()), (PROTOCOL_MAX, "admin"));
    assert_eq!(hello.chunker, Some(holdfast_proto::chunker::params()));
    assert!(hello.namespaces.is_empty());
    let scoped = Client { token: fixture.token(Role::Backup, &["b", "a"]), ..admin.clone() };
    assert_eq!(scoped.hello().await.unwrap().namespaces, ["a", "b"]);
    let message = v1::HelloRequest { min_protocol: 7, max_protocol: 9, client_version: String::new() };
    let newer = admin.backup().hello(admin.request(message)).await;
    assert_eq!(code(newer), ErrorCode::Unsupported);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_stored_and_read_back() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let committed = admin.back_up("", "vm").await.unwrap();
    let details: Vec<DetailRow> = serde_json::from_str(&committed.details).unwrap();
    assert_eq!((details.len(), details[0].backup.as_str()), (1, committed.backup_id.as_str()));
    let window = |message: &v1::ReadDiskResponse| match &message.kind {
        Some(v1::read_disk_response::Kind::Window(window)) => window.extents.len(),
        _ => 0,
    };
    let read = admin.read_disk(&committed.backup_id).await.unwrap();
    assert!(matches!(read[0].kind, Some(v1::read_disk_response::Kind::Header(_))), "{read:?}");
    assert_eq!(read.iter().map(window).sum::<usize>(), 2);
    let range = admin.read_range(&committed.backup_id, 10).await.unwrap();
    let bytes: u64 = range
        .iter()
        .map(|part| match &part.kind {
            Some(v1::read_range_response::Kind::ZeroBytes(count)) => *count,
            Some(v1::read_range_response::Kind::Data(data)) => data.len() as u64,
            None => 0,
        })
        .sum();
    assert_eq!(bytes, 10);
    let part = |first_extent, extent_count| v1::ReadPart { first_extent, extent_count, offset: 0, length: 9 };
    let parts = admin.read_parts(&committed.backup_id, &[part(0, 2), part(1, 1)]).await.unwrap();
    assert_eq!(parts.iter().map(window).collect::<Vec<_>>(), [0, 2, 0, 1, 0], "{parts:?}");
    for wrong in [part(0, 0), part(0, 3), part(2, 1), part(u64::MAX, 2), part(0, 17)] {
        assert_eq!(
            code(admin.read_parts(&committed.backup_id, &[wrong]).await),
            ErrorCode::Invalid,
            "{wrong:?}"
        );
    }
    let unopened = v1::ReadPartsRequest { kind: Some(v1::read_parts_request::Kind::Part(part(0, 1))) };
    let unopened = admin.restore().read_parts(admin.request(tokio_stream::iter([unopened]))).await.unwrap();
    assert_eq!(code(unopened.into_inner().message().await), ErrorCode::Invalid);
    // By prefix, in lower case too, and by "latest".
    let prefix = committed.backup_id[..20].to_lowercase();
    assert_eq!(admin.get_backup("", &prefix, "").await.unwrap().id, committed.backup_id);
    assert_eq!(admin.get_backup("", "latest", "vm").await.unwrap().id, committed.backup_id);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_and_abort_may_be_repeated() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let session = admin.start("", "vm").await.unwrap().session_id;
    assert_eq!(code(admin.start("", "vm").await), ErrorCode::Busy);
    let messages = [ingest::open(&session, 0), ingest::zeros(), ingest::finish()];
    admin.ingest(tokio_stream::iter(messages)).await.unwrap();
    let first = admin.commit(&session).await.unwrap();
    assert_eq!(admin.commit(&session).await.unwrap(), first);
    let session = admin.start("", "vm").await.unwrap().session_id;
    admin.abort(&session).await.unwrap();
    admin.abort(&session).await.unwrap();
    assert_eq!(code(admin.keep_alive(&session).await), ErrorCode::SessionGone);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_arguments_are_refused() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    assert_eq!(code(admin.start("", "v\tm").await), ErrorCode::Invalid);
    assert_eq!(code(admin.start("absent", "vm").await), ErrorCode::NotFound);
    assert_eq!(code(admin.keep_alive("no ULID").await), ErrorCode::Invalid);
    assert_eq!(code(admin.read_disk("no ULID").await), ErrorCode::Invalid);
    assert_eq!(code(admin.get_backup("", "latest", "").await), ErrorCode::Invalid);
    assert_eq!(code(admin.get_backup("", "latest", "absent").await), ErrorCode::NotFound);
    assert_eq!(code(admin.get_backup("", &"0".repeat(27), "").await), ErrorCode::Invalid);
    let whose = admin.json::<Backup>("GET", "/backups/latest?vm=vm", None).await;
    assert_eq!(code(whose), ErrorCode::Invalid, "of which namespace");
    let backup = admin.back_up("", "vm").await.unwrap().backup_id;
    let refused = admin.read_range(&backup, READ_RANGE_MAX_BYTES + 1).await.map(drop).unwrap_err();
    assert!(!refused.metadata().contains_key(RETRY_AFTER_METADATA), "it will never succeed: {refused:?}");
    assert_eq!(code::<()>(Err(refused)), ErrorCode::Limit);
    let page = admin.json::<Keyset<Backup>>("GET", "/backups?page_token=x", None).await;
    assert_eq!(code(page), ErrorCode::Invalid);
    let session = admin.start("", "other").await.unwrap().session_id;
    let message = v1::AbortRequest { session_id: session, reason: "x".repeat(2001) };
    assert_eq!(code(admin.backup().abort(admin.request(message)).await), ErrorCode::Invalid);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_streams_end_with_a_reason_and_leave_the_session() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let session = admin.start("", "vm").await.unwrap().session_id;
    let ends =
        async |messages: Vec<v1::IngestRequest>| code(admin.ingest(tokio_stream::iter(messages)).await);
    let nothing = v1::IngestRequest::default();
    let region = |bytes| v1::IngestRequest {
        order: 0,
        kind: Some(v1::ingest_request::Kind::Region(v1::Region {
            payload: Bytes::from(vec![1; bytes]),
            ..v1::Region::default()
        })),
    };
    assert_eq!(ends(vec![]).await, ErrorCode::Invalid, "no message at all");
    assert_eq!(ends(vec![ingest::zeros()]).await, ErrorCode::Invalid, "no Open");
    assert_eq!(ends(vec![ingest::open(&session, 1)]).await, ErrorCode::Invalid, "no such disk");
    assert_eq!(ends(vec![ingest::open(&session, 0)]).await, ErrorCode::Invalid, "no Finish");
    assert_eq!(ends(vec![ingest::open(&session, 0), nothing]).await, ErrorCode::Invalid, "unknown kind");
    let oversize = vec![ingest::open(&session, 0), region(MESSAGE_MAX_BYTES + 1)];
    assert_eq!(ends(oversize).await, ErrorCode::Limit, "larger than a message may be");
    assert_eq!(
        ends(vec![region(MESSAGE_MAX_BYTES + 1)]).await,
        ErrorCode::Limit,
        "the same as first message"
    );

    // After all that the session can continue: none of it reached the engine.
    let messages = [ingest::open(&session, 0), ingest::zeros(), ingest::finish()];
    admin.ingest(tokio_stream::iter(messages)).await.unwrap();
    admin.commit(&session).await.unwrap();

    // A refusal by the engine ends the disk for good.
    let session = admin.start("", "vm").await.unwrap().session_id;
    let twice = vec![ingest::open(&session, 0), ingest::open(&session, 0)];
    assert_eq!(ends(twice).await, ErrorCode::Invalid, "opened twice");
    assert_eq!(ends(vec![ingest::open(&session, 0), ingest::finish()]).await, ErrorCode::SessionGone);
    assert!(admin.commit(&session).await.is_err());
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_stream_continues_where_it_stopped() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let session = admin.start("", "vm").await.unwrap().session_id;
    let (messages, line) = mpsc::channel(4);
    messages.send(ingest::open(&session, 0)).await.unwrap();
    messages.send(ingest::zeros()).await.unwrap();
    let request = admin.request(ReceiverStream::new(line));
    let mut answers = admin.backup().ingest(request).await.unwrap().into_inner();
    // Accepted once it is acknowledged.
    loop {
        let answer = answers.message().await.unwrap().unwrap().kind.unwrap();
        if matches!(&answer, ingest::Answer::Ack(ack) if ack.extents_accepted == 2) {
            break;
        }
    }
    drop((answers, messages));
    let messages = [ingest::open(&session, 0), ingest::finish()];
    let answers = admin.ingest(tokio_stream::iter(messages)).await.unwrap();
    let Some(ingest::Answer::Opened(opened)) = answers.first() else { panic!("{answers:?}") };
    assert_eq!(opened.accepted.iter().map(|range| range.count).sum::<u64>(), 2);
    admin.commit(&session).await.unwrap();
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_may_wait_for_headers_before_it_says_anything() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let session = admin.start("", "vm").await.unwrap().session_id;
    let (messages, line) = mpsc::channel(4);
    let call = async { admin.backup().ingest(admin.request(ReceiverStream::new(line))).await };
    // The limit only keeps a broken server from hanging the test.
    let answers = tokio::time::timeout(Duration::from_secs(600), call).await.unwrap().unwrap();
    let mut answers = answers.into_inner();
    messages.send(ingest::open(&session, 0)).await.unwrap();
    let first = answers.message().await.unwrap().unwrap().kind.unwrap();
    assert!(matches!(first, ingest::Answer::Opened(_)), "{first:?}");
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_verification_found_is_kept_within_bounds() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let backup = admin.back_up("", "vm").await.unwrap().backup_id;
    let long = "x".repeat(holdfast_proto::limits::VERIFICATION_DETAIL_MAX_BYTES + 1);
    assert_eq!(code(admin.record_verification(&backup, &long).await), ErrorCode::Invalid);
    assert_eq!(code(admin.record_verification("latest", "").await), ErrorCode::Invalid);
    let nowhere = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    assert_eq!(code(admin.record_verification(nowhere, "").await), ErrorCode::NotFound);
    let id = backup.parse().unwrap();
    assert_eq!(fixture.catalog().verifications(&[id]).unwrap(), []);

    admin.record_verification(&backup, "disk \"root\" is\ndamaged").await.unwrap();
    admin.record_verification(&backup, "").await.unwrap();
    let found = fixture.catalog().verifications(&[id]).unwrap();
    let [last] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((last.ok, last.who.as_str()), (true, "admin"));
    assert_eq!(last.detail, "7 bytes read and found sound");
    let page = fixture.catalog().list_audit(PageRequest { size: 2, token: "" }).unwrap();
    let damage = &page.items[1].entry;
    assert!(damage.detail.contains("disk \"root\" is damaged; 7 bytes read and found sound"), "{damage:?}");
    fixture.server.stop().await.unwrap();
}
