use super::*;

fn cause() -> Cause {
    "the cause".into()
}

fn blob() -> BlobName {
    BlobName::new("c/x").unwrap()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Answers {
    retryable: bool,
    may_have_written: bool,
    unreadable_now: bool,
    full: bool,
    poisons_writes: bool,
}

fn answers(error: &VolumeError) -> Answers {
    Answers {
        retryable: error.is_retryable(),
        may_have_written: error.may_have_written(),
        unreadable_now: error.is_unreadable_now(),
        full: error.is_full(),
        poisons_writes: error.poisons_writes(),
    }
}

#[test]
fn every_variant_answers_every_question() {
    let (action, name) = ("seal", "c/x".to_owned());
    let none = Answers::default;
    let in_doubt = || Answers { may_have_written: true, poisons_writes: true, ..none() };
    let table = [
        (VolumeError::NotFound { name: blob() }, none()),
        (VolumeError::Exists { name: blob() }, none()),
        (VolumeError::Full { name: name.clone(), source: cause() }, Answers { full: true, ..none() }),
        (VolumeError::OutOfRange { name: blob(), len: 1, offset: 2, wanted: 3 }, none()),
        (VolumeError::NotDurable { name: name.clone(), source: cause() }, in_doubt()),
        (VolumeError::WriteFailed { action, name: name.clone(), source: cause() }, in_doubt()),
        (VolumeError::Io { action, name: name.clone(), source: cause() }, none()),
        (
            VolumeError::Unavailable { action, name: name.clone(), source: cause() },
            Answers { retryable: true, unreadable_now: true, ..none() },
        ),
        (
            VolumeError::OutcomeUnknown { action, name: name.clone(), source: cause() },
            Answers { retryable: true, may_have_written: true, ..none() },
        ),
        (
            VolumeError::NotReadableNow { name: name.clone(), source: cause() },
            Answers { unreadable_now: true, ..none() },
        ),
        (VolumeError::BadAnswer { action, name, found: "html".to_owned() }, none()),
    ];
    let mut kinds = std::collections::HashSet::new();
    for (error, expected) in &table {
        assert_eq!(answers(error), *expected, "{error:?}");
        assert!(error.to_string().contains("c/x"), "{error} names no object");
        kinds.insert(std::mem::discriminant(error));
    }
    assert_eq!(kinds.len(), table.len(), "a variant is listed twice");
}

#[test]
fn a_cause_is_any_error_and_is_kept() {
    let error = VolumeError::Unavailable { action: "read", name: "x".into(), source: "503 Slow Down".into() };
    assert_eq!(error.source().unwrap().to_string(), "503 Slow Down");
    let error = VolumeError::reading("read", &"x", Errno::IO.into());
    assert!(error.source().unwrap().downcast_ref::<io::Error>().is_some());
}

/// Error codes of the system, and the variants they become for a write and for a read.
#[test]
fn errors_of_the_system_are_told_apart() {
    let table = [
        (Errno::NOSPC, "Full", "Io"),
        (Errno::DQUOT, "Full", "Io"),
        (Errno::MFILE, "Unavailable", "Unavailable"),
        (Errno::NFILE, "Unavailable", "Unavailable"),
        (Errno::INTR, "WriteFailed", "Unavailable"),
        (Errno::AGAIN, "WriteFailed", "Unavailable"),
        (Errno::TIMEDOUT, "WriteFailed", "Unavailable"),
        (Errno::CONNRESET, "WriteFailed", "Unavailable"),
        (Errno::BUSY, "WriteFailed", "Unavailable"),
        (Errno::ACCESS, "WriteFailed", "NotReadableNow"),
        (Errno::PERM, "WriteFailed", "NotReadableNow"),
        (Errno::STALE, "WriteFailed", "NotReadableNow"),
        (Errno::NOTCONN, "WriteFailed", "NotReadableNow"),
        (Errno::HOSTUNREACH, "WriteFailed", "NotReadableNow"),
        (Errno::IO, "WriteFailed", "Io"),
        (Errno::ROFS, "WriteFailed", "Io"),
    ];
    let variant = |error: VolumeError| format!("{error:?}").split(' ').next().unwrap().to_owned();
    for (errno, writing, reading) in table {
        assert_eq!(variant(VolumeError::writing("create", &"x", errno.into())), writing, "{errno:?}");
        assert_eq!(variant(VolumeError::reading("open", &"x", errno.into())), reading, "{errno:?}");
    }
}
