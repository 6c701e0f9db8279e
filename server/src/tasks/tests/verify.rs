//! Verification at the server beside a volume that does not always answer.

use holdfast_engine::ids::TokenId;
use holdfast_engine::{Engine, StartBackup, Starter};
use holdfast_proto::Fingerprint;
use holdfast_proto::v1::{self, ingest_request::Kind};
use holdfast_volume::{Blob, BlobName, Volume, VolumeError};

use super::*;
use crate::config::Settings;
use crate::metrics::Metrics;
use crate::repository::open_parts;

/// So many opens of data containers are not answered.
#[derive(Debug, Clone)]
struct Away {
    inner: Arc<dyn Volume>,
    opens: Arc<Mutex<u32>>,
}

impl Volume for Away {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let mut opens = self.opens.lock();
        if *opens > 0 && name.as_str().starts_with("containers/") {
            *opens -= 1;
            return Err(VolumeError::Unavailable {
                action: "open",
                name: name.to_string(),
                source: "away".into(),
            });
        }
        self.inner.open(name)
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, space, handles_outlive_removal to inner);
}

fn backup(engine: &Engine, vm: &str) {
    let namespace = engine.catalog().ensure_namespace("default").unwrap().id;
    let starter = Starter {
        token: TokenId::from_bytes([1; 16]),
        name: "agent".into(),
        owner: "default".into(),
        is_for_every_owner: true,
        may_take_over: false,
    };
    let chunk = vm.as_bytes().repeat(1000);
    let bytes = u32::try_from(chunk.len()).unwrap();
    let request = v1::StartRequest {
        namespace: "default".into(),
        vm: vm.into(),
        job: "nightly".into(),
        disks: vec![v1::DiskSpec { name: "root".into(), size_bytes: bytes.into() }],
        ..v1::StartRequest::default()
    };
    let started = engine.start_backup(&StartBackup { namespace, request, starter }).unwrap();
    let session = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    let name = Fingerprint::of(&chunk).as_bytes().to_vec();
    let region = v1::Region {
        codec: 0,
        plain_bytes: bytes,
        fingerprints: name.clone().into(),
        lengths: vec![bytes],
        payload: chunk.into(),
    };
    let chunked = vec![v1::ChunkedExtent {
        index: 0,
        digest: name.clone().into(),
        fingerprints: name.into(),
        lengths: vec![bytes],
    }];
    for kind in [
        Kind::Region(region),
        Kind::Extents(v1::Extents { chunked, ..v1::Extents::default() }),
        Kind::Finish(v1::FinishStream { read_bytes: bytes.into(), ..v1::FinishStream::default() }),
    ] {
        stream.handle(kind, 10).unwrap();
    }
    drop(stream);
    engine.commit(session).unwrap();
}

/// One outage of a moment leaves no VM for next week, and what stays unclear is said.
#[test]
fn an_outage_ends_no_verification() {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(START_MS));
    let settings = Settings { data_dir: folder.path().to_owned(), ..Settings::default() };
    let opens: Arc<Mutex<u32>> = Arc::default();
    let engine = || {
        let mut parts = open_parts(&settings, &clock).unwrap();
        parts.data = Arc::new(Away { inner: parts.data, opens: Arc::clone(&opens) });
        Arc::new(Engine::assemble(parts).unwrap())
    };
    let before = engine();
    ["a", "b", "c"].into_iter().for_each(|vm| backup(&before, vm));
    before.shutdown().unwrap();
    drop(before);
    let budget = crate::memory::Budget::find(&settings).unwrap();
    for (outage, unclear) in [(0, 0), (1, 0), (3, 0), (1000, 3)] {
        let engine = engine();
        let work = VerifyWork {
            engine: Arc::clone(&engine),
            clock: Arc::clone(&clock),
            metrics: Arc::new(Metrics::new(None)),
            activity: Arc::new(Activity::new(&engine, &clock, &settings, &budget)),
        };
        let control = Control::new(
            Arc::clone(&clock),
            Arc::<ManualTimer>::default(),
            crate::jobs::Throttle::share(100),
        );
        let order = Order { options: "{}".into(), place: String::new(), who: "op".into() };
        *opens.lock() = outage;
        let done = work.run(&order, &control);
        *opens.lock() = 0;
        let (lines, figures, _) = control.take_told();
        let figures: serde_json::Value = serde_json::from_str(&figures.unwrap()).unwrap();
        assert_eq!(figures["unclear"], unclear, "{outage}: {lines:?}");
        assert_eq!((&figures["sound"], &figures["damaged"]), (&(3 - unclear).into(), &0.into()), "{lines:?}");
        match done {
            Ok(()) => assert_eq!(unclear, 0),
            Err(WorkError::Failed(error)) => assert!(error.message.contains("3 restore points"), "{error}"),
            Err(WorkError::Stopped) => panic!("no one stopped it"),
        }
        assert_eq!(engine.catalog().damaged().unwrap(), []);
        engine.shutdown().unwrap();
    }
}
