//! Clients that stop reading.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::app::holding;
use crate::http::bounds::DOWNLOADS_MAX;
use crate::net::Held;

/// Starts a server with more rows than the pipes between server and client hold: each is some 300 bytes.
async fn with_many_rows(rows: usize) -> Fixture {
    use holdfast_engine::catalog::{Attempt, DetailRow, FailedRun, RowStatus, new_id};
    use holdfast_engine::ids::{RunId, SessionId};
    let fixture = Fixture::start().await;
    let namespace = fixture.catalog().ensure_namespace("default").unwrap();
    let disks = 250;
    for run in 0..rows / disks {
        // Rows of one VM would be added up.
        let vm = format!("vm {run}");
        let at_ms = 1_700_000_000_000 + i64::try_from(run).unwrap();
        let (session, run) = (SessionId(new_id(&SystemClock).unwrap()), RunId(new_id(&SystemClock).unwrap()));
        let row = |disk: usize| DetailRow {
            namespace: "default".into(),
            job: "job".into(),
            run: run.to_string(),
            vm: vm.clone(),
            disk: format!("disk {disk}"),
            status: RowStatus::Failed,
            started_ms: at_ms,
            finished_ms: at_ms,
            error: "x".repeat(1000),
            ..DetailRow::default()
        };
        let failed = FailedRun {
            attempt: Attempt {
                session,
                run,
                namespace: namespace.id,
                vm: vm.clone(),
                job: "job".into(),
                owner: "default".into(),
                vm_owner: "default".into(),
                client_host: "test".into(),
                who: "test".into(),
                started_ms: at_ms,
                finished_ms: at_ms,
                accepted_change: false,
            },
            details: (0..disks).map(row).collect(),
            containers: Vec::new(),
        };
        fixture.catalog().record_failed_run(&failed).unwrap();
    }
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stops_holds_one_slot_and_no_more() {
    let fixture = with_many_rows(20_000).await;
    let token = fixture.admin_token();
    let request = |token: &str| {
        format!(
            "GET /api/v1/details?format=tsv HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
    };
    let other = fixture.token(Role::Operator, &[]);
    let mut stopped = Vec::new();
    for number in 0..DOWNLOADS_MAX {
        let of_other = number < DOWNLOADS_MAX / 2;
        if number == DOWNLOADS_MAX / 2 {
            let refused = fixture.get(&other, "/api/v1/details?format=tsv").await;
            assert_eq!((refused.status, refused.problem().as_str()), (429, "limit"), "it has half of them");
        }
        let request = request(if of_other { &other } else { &token });
        let mut stream = fixture.https().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut begin = [0; 64];
        stream.read_exact(&mut begin).await.unwrap();
        assert!(begin.starts_with(b"HTTP/1.1 200"));
        stopped.push(stream);
    }
    let refused = fixture.get(&token, "/api/v1/details?format=tsv").await;
    assert_eq!((refused.status, refused.problem().as_str()), (429, "limit"));
    // Other clients are served meanwhile.
    assert_eq!(fixture.get(&token, "/api/v1/details?limit=1").await.ok()["total"], 20_000);
    drop(stopped.pop());
    let whole = loop {
        let answer = fixture.get(&token, "/api/v1/details?format=tsv").await;
        if answer.status == 200 {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(whole.text().lines().count(), 20_001);
    // Nor do they hold up shutdown.
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_ends_with_its_token() {
    let fixture = with_many_rows(20_000).await;
    let token = fixture.token(Role::Operator, &[]);
    let ask = Ask::new("GET", "/api/v1/details?format=csv&sort=-vm").bearer(&token);
    let mut body = fixture.open(ask).await.into_body();
    body.frame().await.unwrap().unwrap();
    let id = token.parse::<token::PresentedToken>().unwrap().id();
    fixture.catalog().revoke_token(id).unwrap();
    let broken = loop {
        match body.frame().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => break error,
            None => panic!("a part looks like the whole"),
        }
    };
    assert!(!broken.to_string().is_empty());
    fixture.server.stop().await.unwrap();
}

/// The work of a request that is given up goes on on a thread that everyone shares.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_given_up_holds_its_slot_until_its_work_ends() {
    let fixture = Fixture::start().await;
    let app = Arc::clone(fixture.server.app());
    let slot = Arc::new(());
    let ((begun, is_begun), (go, may_go)) =
        (tokio::sync::oneshot::channel(), std::sync::mpsc::channel::<()>());
    let work = async move {
        let work = move |_: &Arc<App>| {
            begun.send(()).unwrap();
            may_go.recv().unwrap();
            Ok(())
        };
        app.blocking(work).await
    };
    let request = tokio::spawn(holding(Some(Held::new(Arc::clone(&slot))), work));
    is_begun.await.unwrap();
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    assert_eq!(Arc::strong_count(&slot), 2, "its work goes on");
    go.send(()).unwrap();
    while Arc::strong_count(&slot) > 1 {
        tokio::task::yield_now().await;
    }
    fixture.server.stop().await.unwrap();
}
