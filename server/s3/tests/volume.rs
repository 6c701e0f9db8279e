//! The volume on an object store in this process: conformance, and failures.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use holdfast_bucket::{ACCESS_KEY, BUCKET, Fault, Op, SECRET_KEY, TestBucket};
use holdfast_s3::{ChecksumKind, Credentials, RequestKind, S3Config, S3Volume};
use holdfast_volume::testing::{FixedRandom, ManualTimer, list, put, retention_suite, volume_suite};
use holdfast_volume::{
    BlobChecksum, BlobName, Hold, LockMode, RemoteVolume as _, Retained, RetryPolicy, RetryVolume, Volume,
    VolumeError,
};

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

fn config(bucket: &TestBucket, prefix: &str) -> S3Config {
    let mut config = S3Config::of(&format!("s3://{BUCKET}/{prefix}")).unwrap();
    config.endpoint = Some(bucket.endpoint().to_owned());
    config.path_style = true;
    config.credentials = Credentials::Keys { id: ACCESS_KEY.to_owned(), secret: SECRET_KEY.to_owned() };
    config
}

fn volume(bucket: &TestBucket) -> S3Volume {
    S3Volume::open(config(bucket, "site")).unwrap()
}

/// Uses a bucket named by the environment, if any: `HOLDFAST_TEST_S3` is its location, and the usual variables give
/// the credentials.
#[test]
fn conforms() {
    let bucket = TestBucket::start();
    let place = std::cell::Cell::new(0);
    volume_suite(|| {
        place.set(place.get() + 1);
        let prefix = format!("conformance/{}-{}", std::process::id(), place.get());
        let config = match std::env::var("HOLDFAST_TEST_S3") {
            Ok(location) => {
                let mut config =
                    S3Config::of(&format!("{}/{prefix}", location.trim_end_matches('/'))).unwrap();
                config.endpoint = std::env::var("HOLDFAST_TEST_S3_ENDPOINT").ok();
                config.path_style = config.endpoint.is_some();
                config
            }
            Err(_) => config(&bucket, &prefix),
        };
        Box::new(S3Volume::open(config).unwrap())
    });
}

/// Objects with retention behave as on the volume in memory.
#[test]
fn conforms_with_object_lock() {
    let bucket = TestBucket::start_with_object_lock();
    let volume = volume(&bucket);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    retention_suite(&volume, i64::try_from(now.as_millis()).unwrap(), &|more_ms| {
        bucket.set_ahead(Duration::from_millis(u64::try_from(more_ms).unwrap()));
    });
}

/// A missing feature or permission is reported with advice: Object Lock, or rights.
#[test]
fn a_bucket_without_object_lock_says_so() {
    let bucket = TestBucket::start();
    let plain = volume(&bucket);
    assert!(!plain.can_retain().unwrap());
    put(&plain, "c/x", b"bytes");
    assert_eq!(plain.look(&name("c/x")).unwrap().version, None);
    let wanted = Retained { mode: LockMode::Compliance, until_ms: 4_000_000_000_000 };
    let error = plain.retain(&name("c/x"), "any", wanted).unwrap_err();
    assert!(error.to_string().contains("no Object Lock"), "{error}");

    let bucket = TestBucket::start_with_object_lock();
    let locked = volume(&bucket);
    assert!(locked.can_retain().unwrap());
    put(&locked, "c/x", b"bytes");
    let version = locked.look(&name("c/x")).unwrap().version.unwrap();
    bucket.fail(Op::Retain, "", 1, Fault::Refuse(403, "AccessDenied"));
    let error = locked.retain(&name("c/x"), &version, wanted).unwrap_err();
    assert!(error.to_string().contains("s3:PutObjectRetention"), "{error}");
    bucket.fail(Op::Get, "", 1, Fault::Refuse(403, "AccessDenied"));
    let error = locked.can_retain().unwrap_err();
    assert!(error.to_string().contains("s3:GetBucketObjectLockConfiguration"), "{error}");
    // A refusal without a hold is not a temporary one.
    bucket.fail(Op::Delete, "", 1, Fault::Refuse(403, "AccessDenied"));
    let error = locked.remove_for_good(&[name("c/x")]).unwrap_err();
    assert!(error.to_string().contains("s3:DeleteObjectVersion"), "{error}");
}

/// Where versions are kept, removing for good takes one listing an object, and no request about versions.
#[test]
fn removing_for_good_is_a_listing_each_and_one_request() {
    let bucket = TestBucket::start_with_object_lock();
    let volume = volume(&bucket);
    let names: Vec<BlobName> = (0..20).map(|number| name(&format!("c/{number}"))).collect();
    for one in &names {
        put(&volume, one.as_str(), b"bytes");
    }
    assert_eq!(volume.remove_for_good(&names).unwrap(), []);
    assert_eq!((bucket.count(Op::Head), bucket.count(Op::Delete), bucket.count(Op::List)), (0, 1, 20));
    assert!(names.iter().all(|one| bucket.versions(&format!("site/{one}")).is_empty()), "not even a marker");
}

/// An object whose storage class changed covers its older version, and a delete marker covers both.
#[test]
fn all_versions_and_markers_are_removed_for_good() {
    let bucket = TestBucket::start_with_object_lock();
    let volume = volume(&bucket);
    put(&volume, "c/x", b"bytes");
    put(&volume, "c/xy", b"bytes");
    let tag = volume.look(&name("c/x")).unwrap().tag.unwrap();
    volume.set_class(&name("c/x"), "GLACIER", &tag).unwrap();
    assert_eq!(bucket.versions("site/c/x").len(), 2);
    assert_eq!(volume.remove_for_good(&[name("c/x")]).unwrap(), []);
    assert_eq!(bucket.versions("site/c/x"), Vec::<String>::new());
    put(&volume, "c/x", b"bytes");
    volume.remove(&name("c/x")).unwrap();
    assert_eq!(bucket.versions("site/c/x").len(), 2);
    assert_eq!(volume.remove_for_good(&[name("c/x")]).unwrap(), []);
    assert_eq!(bucket.versions("site/c/x"), Vec::<String>::new());
    assert_eq!(bucket.keys(), ["site/c/xy"], "a name that begins so is another");
}

/// An object with very many versions is removed, and others do not wait for it.
#[test]
fn many_versions_are_removed_for_good() {
    let bucket = TestBucket::start_with_object_lock();
    let volume = volume(&bucket);
    for _ in 0..2_300 {
        bucket.replace("site/c/x", "another");
    }
    assert_eq!(volume.remove_for_good(&[name("c/x")]).unwrap(), []);
    assert_eq!(bucket.versions("site/c/x").len(), 0);
    for _ in 0..10_500 {
        bucket.replace("site/c/x", "another");
    }
    put(&volume, "c/y", b"bytes");
    let all = [name("c/x"), name("c/y")];
    assert_eq!(volume.remove_for_good(&all).unwrap(), [(name("c/x"), Hold::Until(0))], "not all at once");
    assert_eq!((bucket.versions("site/c/x").len(), bucket.versions("site/c/y").len()), (500, 0));
    assert_eq!(volume.remove_for_good(&all).unwrap(), []);
    assert_eq!(bucket.keys(), Vec::<String>::new());
}

/// A listing of versions that never ends is an error.
#[test]
fn a_listing_of_versions_that_leads_nowhere_is_an_error() {
    let bucket = TestBucket::start_with_object_lock();
    let volume = volume(&bucket);
    put(&volume, "c/x", b"bytes");
    let begin = "<ListVersionsResult><IsTruncated>true</IsTruncated>";
    let entry = "<Version><Key>site/c/x</Key><VersionId>v1</VersionId><Size>5</Size></Version>";
    let next = "<NextKeyMarker>site/c/x</NextKeyMarker><NextVersionIdMarker>v1</NextVersionIdMarker>";
    for (page, times) in [
        // An empty page.
        (format!("{begin}{next}</ListVersionsResult>"), 1),
        // The same page again and again.
        (format!("{begin}{next}{entry}</ListVersionsResult>"), 2),
        // Without the start of the next page.
        (format!("{begin}{entry}</ListVersionsResult>"), 1),
    ] {
        let page: &'static str = page.leak();
        for _ in 0..2 {
            bucket.fail(Op::List, "", times, Fault::Answer(page));
        }
        let error = volume.uncover(&name("c/x"), 5, None, None).unwrap_err();
        assert!(matches!(error, VolumeError::BadAnswer { .. }), "{page}: {error}");
        let error = volume.remove_for_good(&[name("c/x")]).unwrap_err();
        assert!(matches!(error, VolumeError::BadAnswer { .. }), "{page}: {error}");
        bucket.heal();
    }
    assert_eq!(volume.stat(&name("c/x")).unwrap().len, 5);
}

/// Listings of objects and of uploads do not loop, either.
#[test]
fn a_listing_that_leads_nowhere_is_an_error() {
    let bucket = TestBucket::start();
    let volume = volume(&bucket);
    let objects = |inside: &str| {
        format!("<ListBucketResult><IsTruncated>true</IsTruncated>{inside}</ListBucketResult>").leak()
    };
    // A key that is no blob's: the listing continues after it.
    let stranger = "<Contents><Key>site/c/a b</Key><Size>5</Size></Contents>";
    for (page, times) in [(objects(""), 1), (objects(stranger), 2)] {
        let page: &'static str = page;
        let is_refused = |outcome: Result<(), VolumeError>| {
            bucket.heal();
            assert!(matches!(outcome, Err(VolumeError::BadAnswer { .. })), "{page}: {outcome:?}");
        };
        bucket.fail(Op::List, "", times, Fault::Answer(page));
        is_refused(volume.list(&name("c"), None, NonZeroUsize::MIN).map(|_| ()));
        bucket.fail(Op::List, "", 1, Fault::Answer(page));
        is_refused(volume.list_objects(Some("c/a b")).map(|_| ()));
    }
    let next = "<NextKeyMarker>site/c/x</NextKeyMarker><NextUploadIdMarker>1</NextUploadIdMarker>";
    for (inside, times) in [("", 1), (next, 2)] {
        let page = format!(
            "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>{inside}</ListMultipartUploadsResult>"
        );
        bucket.fail(Op::Parts, "", times, Fault::Answer(page.leak()));
        let outcome = volume.discard_unfinished();
        bucket.heal();
        assert!(matches!(outcome, Err(VolumeError::BadAnswer { .. })), "{inside}: {outcome:?}");
    }
}

#[test]
fn a_whole_bucket_and_a_part_of_it_are_volumes() {
    let bucket = TestBucket::start();
    let whole = S3Volume::open(config(&bucket, "")).unwrap();
    put(&whole, "c/x", b"1");
    put(&volume(&bucket), "c/y", b"2");
    bucket.replace("c/Of-another program", "3");
    assert_eq!(bucket.keys(), ["c/Of-another program", "c/x", "site/c/y"]);
    assert_eq!(list(&whole, "c").len(), 1, "what is not ours is not listed");
    assert_eq!(list(&volume(&bucket), "c").len(), 1);
}

/// A container is one request, with none before it.
#[test]
fn a_blob_is_one_put() {
    let bucket = TestBucket::start();
    let volume = volume(&bucket);
    put(&volume, "containers/1", &vec![7; 33 << 20]);
    assert_eq!((bucket.count(Op::Put), bucket.count(Op::Head), bucket.count(Op::Parts)), (1, 0, 0));
    assert!(bucket.object("site/containers/1").unwrap().has_checksum);
    let requests = volume.requests();
    assert_eq!((requests.made(RequestKind::Put), requests.sent_bytes()), (1, 33 << 20));
}

#[test]
fn a_large_blob_is_sent_in_parts_and_checked_as_a_whole() {
    for checksum in [ChecksumKind::Crc64Nvme, ChecksumKind::Crc32c, ChecksumKind::Off] {
        let bucket = TestBucket::start();
        let config = S3Config { checksum, ..config(&bucket, "site") };
        let volume = S3Volume::open(config).unwrap();
        let bytes: Vec<u8> = (0..(41_u32 << 20)).map(|at| (at / 4099).to_le_bytes()[0]).collect();
        put(&volume, "snapshots/1", &bytes);
        let object = bucket.object("site/snapshots/1").unwrap();
        assert!(object.bytes == bytes);
        assert_eq!(object.has_checksum, checksum != ChecksumKind::Off);
        assert_eq!(bucket.unfinished_uploads(), 0);
        // Nothing is replaced.
        let mut again = volume.create(&name("snapshots/1")).unwrap();
        again.append(&bytes).unwrap();
        assert!(matches!(again.seal(), Err(VolumeError::Exists { .. })));
    }
}

#[test]
fn uploads_that_were_not_finished_are_discarded() {
    let bucket = TestBucket::start();
    let volume = volume(&bucket);
    let mut writer = volume.create(&name("snapshots/1")).unwrap();
    writer.append(&vec![1; 41 << 20]).unwrap();
    std::mem::forget(writer);
    assert_eq!(bucket.unfinished_uploads(), 1);
    assert_eq!(volume.discard_unfinished().unwrap(), 1);
    assert_eq!((bucket.unfinished_uploads(), bucket.keys().len()), (0, 0));
}

#[test]
fn what_lies_there_is_told_with_its_checksum() {
    let bucket = TestBucket::start();
    let volume = volume(&bucket);
    put(&volume, "c/x", b"123456789");
    let stat = volume.stat(&name("c/x")).unwrap();
    assert_eq!((stat.len, stat.checksum), (9, Some(BlobChecksum::Crc64Nvme(0xAE8B_1486_0A79_9888))));
    assert_eq!(stat.class, None);
    bucket.set_class("site/c/x", "DEEP_ARCHIVE");
    assert_eq!(volume.stat(&name("c/x")).unwrap().class.as_deref(), Some("DEEP_ARCHIVE"));
    bucket.keep_no_checksums();
    assert_eq!(volume.stat(&name("c/x")).unwrap().checksum, None);
    assert!(matches!(volume.stat(&name("c/y")), Err(VolumeError::NotFound { .. })));
}

/// A lost answer to a PUT may leave the object; a retry reports that.
#[test]
fn a_put_whose_answer_is_lost_may_have_been_done() {
    let bucket = TestBucket::start();
    let volume = volume(&bucket);
    for (fault, is_there) in [(Fault::LoseAnswer, true), (Fault::Break, false)] {
        bucket.fail(Op::Put, "", 1, fault);
        let blob = name(if is_there { "c/there" } else { "c/not" });
        let mut writer = volume.create(&blob).unwrap();
        writer.append(b"bytes").unwrap();
        let error = writer.seal().unwrap_err();
        assert!(matches!(error, VolumeError::OutcomeUnknown { .. }), "{error}");
        assert_eq!(volume.stat(&blob).is_ok(), is_there);
        let mut writer = volume.create(&blob).unwrap();
        writer.append(b"bytes").unwrap();
        assert_eq!(matches!(writer.seal(), Err(VolumeError::Exists { .. })), is_there);
    }
}

/// Throttling and truncated answers are retried, and succeed.
#[test]
fn passing_failures_are_retried_around_it() {
    let bucket = TestBucket::start();
    let timer = Arc::new(ManualTimer::default());
    let inner = volume(&bucket);
    put(&inner, "c/x", &[5; 100_000]);
    let volume = RetryVolume::new(Arc::new(inner), RetryPolicy::default(), timer, Arc::new(FixedRandom(1)));
    let blob = volume.open(&name("c/x")).unwrap();
    for fault in
        [Fault::Refuse(503, "SlowDown"), Fault::Refuse(500, "InternalError"), Fault::Truncate, Fault::Break]
    {
        for op in [Op::Get, Op::List] {
            bucket.fail(op, "", 2, fault.clone());
        }
        assert_eq!(blob.read_vec(&name("c/x"), 1000, 50_000).unwrap(), [5; 50_000], "{fault:?}");
        assert_eq!(blob.read_vec(&name("c/x"), 0, 100_000).unwrap(), [5; 100_000], "{fault:?}");
        assert_eq!(list(&volume, "c").len(), 1);
        bucket.heal();
    }
}

/// A refusal comes with advice, and is never mistaken for data loss.
#[test]
fn refusals_say_what_to_do() {
    let bucket = TestBucket::start();
    let volume = volume(&bucket);
    put(&volume, "c/x", b"bytes");
    let blob = volume.open(&name("c/x")).unwrap();
    for (status, code, part) in [
        (403, "AccessDenied", "s3:GetObject"),
        (400, "ExpiredToken", "credentials have ended"),
        (403, "RequestTimeTooSkewed", "clock"),
        (301, "PermanentRedirect", "s3_region"),
    ] {
        bucket.fail(Op::Get, "", 1, Fault::Refuse(status, code));
        let error = blob.read_vec(&name("c/x"), 0, 5).unwrap_err();
        assert!(error.is_unreadable_now() && error.to_string().contains(part), "{code}: {error}");
        bucket.fail(Op::Put, "", 1, Fault::Refuse(status, code));
        let error = volume.create(&name("c/y")).unwrap().seal().unwrap_err();
        assert!(!error.may_have_written() && !error.poisons_writes(), "{code}: {error}");
    }
    bucket.archive("site/c/x");
    let error = blob.read_vec(&name("c/x"), 0, 5).unwrap_err();
    assert!(error.is_unreadable_now() && error.to_string().contains("archive"), "{error}");

    let mut wrong = config(&bucket, "site");
    wrong.bucket = "other".to_owned();
    let wrong = S3Volume::open(wrong).unwrap();
    for error in
        [wrong.open(&name("c/x")).unwrap_err(), wrong.list(&name("c"), None, NonZeroUsize::MIN).unwrap_err()]
    {
        assert!(error.is_unreadable_now() && error.to_string().contains("no bucket \"other\""), "{error}");
    }
    let mut wrong = config(&bucket, "site");
    wrong.credentials = Credentials::Keys { id: ACCESS_KEY.to_owned(), secret: "guessed".to_owned() };
    let error = S3Volume::open(wrong).unwrap().list(&name("c"), None, NonZeroUsize::MIN).unwrap_err();
    assert!(error.to_string().contains("secret key"), "{error}");
}

fn credentials_file(folder: &tempfile::TempDir, secret: &str) -> Credentials {
    let path = folder.path().join("credentials");
    let keys = format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = ");
    std::fs::write(&path, format!("[default]\n{keys}{secret}\n[other]\n{keys}guessed\n")).unwrap();
    Credentials::File { path, profile: None }
}

/// Credentials from a file, and from a profile in it. A replaced file takes effect with the next request.
#[test]
fn credentials_come_from_a_file_and_may_be_replaced() {
    let (bucket, folder) = (TestBucket::start(), tempfile::tempdir().unwrap());
    let with = |credentials| S3Volume::open(S3Config { credentials, ..config(&bucket, "site") }).unwrap();
    let volume = with(credentials_file(&folder, SECRET_KEY));
    put(&volume, "c/x", b"bytes");
    assert_eq!(list(&volume, "c").len(), 1);
    let Credentials::File { path, .. } = credentials_file(&folder, SECRET_KEY) else { panic!() };
    let other = with(Credentials::File { path: path.clone(), profile: Some("other".to_owned()) });
    let error = other.list(&name("c"), None, NonZeroUsize::MIN).unwrap_err();
    assert!(error.to_string().contains("secret key"), "{error}");

    // They expire, and are replaced.
    credentials_file(&folder, "that of yesterday");
    let error = volume.list(&name("c"), None, NonZeroUsize::MIN).unwrap_err();
    assert!(error.to_string().contains("secret key"), "{error}");
    credentials_file(&folder, SECRET_KEY);
    assert_eq!(list(&volume, "c").len(), 1);

    // A missing file, or one without credentials, fails the request and nothing else.
    for (action, part) in [(0, "cannot be read"), (1, "s3_credentials")] {
        match action {
            0 => std::fs::remove_file(&path).unwrap(),
            _ => std::fs::write(&path, "nothing of the kind").unwrap(),
        }
        let error = volume.list(&name("c"), None, NonZeroUsize::MIN).unwrap_err();
        assert!(error.is_unreadable_now() && error.to_string().contains(part), "{error}");
        assert!(error.to_string().contains("s3_credentials"), "{error}");
    }
}

/// The error for an unreachable bucket includes the root cause.
#[test]
fn a_bucket_that_cannot_be_reached_is_told_with_the_first_cause() {
    let gone = TestBucket::start();
    let mut config = config(&gone, "site");
    // Bound, but not listening.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    drop(taken);
    config.endpoint = Some(format!("http://127.0.0.1:{port}"));
    let error = S3Volume::open(config).unwrap().list(&name("c"), None, NonZeroUsize::MIN).unwrap_err();
    let said = error.to_string();
    assert!(said.contains(&port.to_string()) && said.to_lowercase().contains("refused"), "{said}");
    assert!(error.is_retryable() && error.is_unreadable_now(), "{error:?}");
}

/// A handle does not read an object that replaced the one that was opened.
#[test]
fn a_handle_reads_the_object_that_was_opened() {
    let bucket = TestBucket::start();
    let volume = volume(&bucket);
    put(&volume, "c/x", b"first");
    let blob = volume.open(&name("c/x")).unwrap();
    bucket.replace("site/c/x", "other");
    assert!(matches!(blob.read_vec(&name("c/x"), 1, 2), Err(VolumeError::NotFound { .. })));
    bucket.delete("site/c/x");
    assert!(matches!(blob.read_vec(&name("c/x"), 1, 2), Err(VolumeError::NotFound { .. })));
}

/// The basis of agreement between two servers: of two concurrent changes one is carried out.
#[test]
fn a_small_object_is_changed_only_as_it_was_read() {
    let bucket = TestBucket::start();
    let (one, other) = (volume(&bucket), volume(&bucket));
    let lease = name("lease");
    assert_eq!((one.read_tagged(&lease).unwrap(), one.tag(&lease).unwrap()), (None, None));
    assert_eq!(
        one.replace_tagged(&lease, b"x", Some("\"gone\"")).unwrap(),
        None,
        "there is nothing to change"
    );
    let first = one.replace_tagged(&lease, b"one", None).unwrap().unwrap();
    assert_eq!(other.replace_tagged(&lease, b"other", None).unwrap(), None, "someone was faster");
    let read = other.read_tagged(&lease).unwrap().unwrap();
    assert_eq!((read.bytes.as_slice(), &read.tag), (b"one".as_slice(), &first));
    let second = other.replace_tagged(&lease, b"other", Some(&first)).unwrap().unwrap();
    assert_ne!(first, second);
    assert_eq!(one.replace_tagged(&lease, b"one again", Some(&first)).unwrap(), None, "it is another by now");
    assert_eq!(one.tag(&lease).unwrap().as_deref(), Some(second.as_str()));
    // A lost answer may have been a success.
    bucket.fail(Op::Put, "lease", 1, Fault::LoseAnswer);
    let error = other.replace_tagged(&lease, b"third", Some(&second)).unwrap_err();
    assert!(error.may_have_written(), "{error}");
    assert_eq!(one.read_tagged(&lease).unwrap().unwrap().bytes, b"third");
}

#[test]
fn objects_say_who_wrote_them() {
    let bucket = TestBucket::start();
    let volume = volume(&bucket);
    put(&volume, "c/x", b"1");
    volume.sign_with(7);
    put(&volume, "c/y", b"2");
    let writer = |key: &str| bucket.object(key).unwrap().metadata.get("holdfast-writer").cloned();
    assert_eq!((writer("site/c/x"), writer("site/c/y")), (None, Some("7".to_owned())));
}

#[test]
fn many_are_removed_by_few_requests() {
    let bucket = TestBucket::start();
    let volume = volume(&bucket);
    let names: Vec<BlobName> = (0..1200).map(|number| name(&format!("c/{number}"))).collect();
    for one in &names {
        bucket.replace(&format!("site/{one}"), "x");
    }
    assert_eq!(list(&volume, "c").len(), 1200);
    assert_eq!(bucket.count(Op::List), 2);
    volume.remove_all(&names).unwrap();
    assert_eq!((bucket.keys().len(), bucket.count(Op::Delete)), (0, 2));
    volume.remove_all(&names).unwrap();
}

/// A server that accepts connections and never answers is abandoned after the time limit, and at once by a stop.
#[test]
fn a_stop_ends_a_put_under_way() {
    let bucket = TestBucket::start();
    let volume = Arc::new(volume(&bucket));
    bucket.set_latency(Duration::from_secs(3600));
    let begun = Instant::now();
    let writing = {
        let volume = Arc::clone(&volume);
        std::thread::spawn(move || volume.create(&name("c/x")).unwrap().seal().unwrap_err())
    };
    while bucket.count(Op::Put) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    volume.stop_writing();
    let error = writing.join().unwrap();
    assert!(error.may_have_written(), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(3000), "it did not wait for the answer");
}

/// Keeps below the request rate of a service that limits or bills requests.
#[test]
fn no_more_requests_a_second_begin_than_wanted() {
    let bucket = TestBucket::start();
    let mut config = config(&bucket, "site");
    config.requests_per_sec = NonZeroU64::new(20);
    let paced = S3Volume::open(config).unwrap();
    let began = Instant::now();
    for _ in 0..30 {
        paced.stat(&name("c/x")).unwrap_err();
    }
    // A quarter of a second's worth passes at once.
    assert!(began.elapsed() >= Duration::from_millis(29 * 50 - 250), "{:?}", began.elapsed());
}
