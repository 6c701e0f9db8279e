//! Requests and answers; the work behind them is tested with the keys (`repository/encryption`) and end to end.

use super::*;

#[test]
fn requests_read_back() {
    for request in [Request::Status, Request::Keys { based_on: u64::MAX, table: vec![0; 100] }] {
        let head = request.head();
        assert!(head.len() <= HEAD_MAX_BYTES, "{head}");
        let (parsed, len) = Request::parse(head.strip_suffix('\n').unwrap().as_bytes()).unwrap();
        match (parsed, request) {
            (Request::Status, Request::Status) => assert_eq!(len, 0),
            (Request::Keys { based_on, .. }, Request::Keys { based_on: wanted, table }) => {
                assert_eq!((based_on, len), (wanted, table.len()));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A length that is announced allocates nothing unless it is one that a table can have.
#[test]
fn other_requests_are_none() {
    let too_long = format!("keys 1 {}", KEY_TABLE_MAX_BYTES + 1);
    for head in [
        "",
        "status 1",
        "keys",
        "keys 1",
        "keys 1 x",
        "keys 1 1 1",
        "keys -1 1",
        "other",
        "\u{e9}",
        &too_long,
    ] {
        assert!(Request::parse(head.as_bytes()).is_none(), "{head}");
    }
    assert!(Request::parse(&[0xff, 0xfe]).is_none());
}

/// Paths of sockets are short; those of folders need not be.
#[test]
fn a_folder_with_a_long_name_has_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    for long in ["x".repeat(10), "x".repeat(200)] {
        let data_dir = folder.path().join(long);
        std::fs::create_dir(&data_dir).unwrap();
        let listener = at_socket(&data_dir, |path| std::os::unix::net::UnixListener::bind(path)).unwrap();
        assert!(data_dir.join(SOCKET).exists());
        at_socket(&data_dir, |path| std::os::unix::net::UnixStream::connect(path)).unwrap();
        listener.accept().unwrap();
    }
}

#[test]
fn refusals_keep_their_code_and_words() {
    let refused = ServiceError::new(ErrorCode::Busy, "wait");
    let text = serde_json::to_vec(&Answer::refused(&refused)).unwrap();
    let answer: Answer = serde_json::from_slice(&text).unwrap();
    assert_eq!(answer.result().unwrap_err(), refused);
}
