//! Readiness: what the server says of it, and to whom.

use holdfast_engine::clock::ManualClock;

use super::*;
use crate::readiness::Readiness;

fn words(readiness: &Readiness) -> Vec<&'static str> {
    readiness.look().iter().map(|reason| reason.word).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_has_expired() {
    let fixture = Fixture::start().await;
    let app = fixture.server.app();
    let ends =
        app.addresses.certificate.expires_ms().expect("the server's own certificate says when it ends");
    let certificate = || Arc::clone(&app.addresses.certificate);
    let at = |now| Readiness::new(Arc::clone(&app.engine), Arc::new(ManualClock::new(now)), certificate());
    assert_eq!(words(&at(ends - 1)), [""; 0]);
    assert_eq!(words(&at(ends)), ["certificate"]);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_repository_says_so_in_the_answer_and_in_the_metrics() {
    let full = |settings: &mut Settings| {
        settings.reserve = Reserve::Bytes(ByteSize(1 << 60));
        settings.metrics_open = true;
    };
    let fixture = Fixture::start_with(full).await;
    let answer = fixture.get("", "/readyz").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["reasons"], serde_json::json!(["full"]));
    assert!(answer.json()["reason"].as_str().unwrap().contains("add storage"));
    assert_eq!(fixture.get("", "/healthz").await.status, 200);
    let metrics = fixture.get("", "/metrics").await.text();
    assert!(metrics.contains("holdfast_not_ready{reason=\"full\"} 1"), "{metrics}");
    assert!(metrics.contains("holdfast_not_ready{reason=\"catalog\"} 0"), "{metrics}");
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_gone() {
    let fixture = Fixture::start().await;
    let blobs = fixture.folder.path().join("blobs");
    fs::rename(&blobs, fixture.folder.path().join("elsewhere")).unwrap();
    let app = Arc::clone(fixture.server.app());
    assert_eq!(words(&app.readiness), ["volume_absent"]);
    fs::rename(fixture.folder.path().join("elsewhere"), &blobs).unwrap();
    fixture.server.stop().await.unwrap();
}
