//! The contract of volumes with retention, as one suite.

use super::put;
use crate::{BlobName, Hold, LockMode, RemoteVolume, Retained, VolumeError};

const DAY_MS: i64 = 24 * 3600 * 1000;

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

fn version(volume: &dyn RemoteVolume, of: &BlobName) -> String {
    volume.look(of).unwrap().version.expect("a version")
}

/// Runs every check on an empty volume whose clock reads `now_ms`, and which `later` advances.
pub fn retention_suite(volume: &dyn RemoteVolume, now_ms: i64, later: &dyn Fn(i64)) {
    assert!(volume.can_retain().unwrap());
    let day = now_ms.div_euclid(DAY_MS) * DAY_MS;
    for mode in [LockMode::Governance, LockMode::Compliance] {
        let folder = mode.to_string();
        extends_and_never_shortens(volume, &folder, mode, day);
        what_must_stay_is_not_removed(volume, &folder, mode, day);
        what_lies_below_is_removed_as_well(volume, &folder, mode, day);
        what_is_covered_comes_back(volume, &folder, mode, day);
        what_has_the_same_length_is_told_apart(volume, &folder);
        what_lies_below_what_must_stay_does_not(volume, &folder, mode, day);
    }
    later(20 * DAY_MS);
    for mode in [LockMode::Governance, LockMode::Compliance] {
        let all = ["extended", "held", "held-below"].map(|one| name(&format!("{mode}/{one}")));
        assert_eq!(volume.remove_for_good(&all).unwrap(), [], "its time is over");
        for one in &all {
            assert!(matches!(volume.look(one), Err(VolumeError::NotFound { .. })));
            assert!(!volume.uncover(one, 5, None, None).unwrap(), "it is gone for good");
        }
    }
}

fn extends_and_never_shortens(volume: &dyn RemoteVolume, folder: &str, mode: LockMode, day: i64) {
    let blob = name(&format!("{folder}/extended"));
    put(volume, blob.as_str(), b"bytes");
    assert_eq!(volume.look(&blob).unwrap().retained, None);
    let until = |days: i64| Retained { mode, until_ms: day + days * DAY_MS };
    let at = version(volume, &blob);
    for days in [3, 5, 5, 9] {
        volume.retain(&blob, &at, until(days)).unwrap();
        assert_eq!(volume.look(&blob).unwrap().retained, Some(until(days)));
    }
    let other = match mode {
        LockMode::Governance => LockMode::Compliance,
        LockMode::Compliance => LockMode::Governance,
    };
    for refused in [until(8), Retained { mode: other, ..until(9) }] {
        let error = volume.retain(&blob, &at, refused).unwrap_err();
        assert!(!error.may_have_written() && !error.poisons_writes(), "{error}");
        assert_eq!(volume.look(&blob).unwrap().retained, Some(until(9)));
    }
    let gone = volume.retain(&name(&format!("{folder}/none")), &at, until(9)).unwrap_err();
    assert!(matches!(gone, VolumeError::NotFound { .. }), "{gone}");
}

fn what_must_stay_is_not_removed(volume: &dyn RemoteVolume, folder: &str, mode: LockMode, day: i64) {
    let (held, free) = (name(&format!("{folder}/held")), name(&format!("{folder}/free")));
    put(volume, held.as_str(), b"bytes");
    put(volume, free.as_str(), b"bytes");
    let until_ms = day + 4 * DAY_MS;
    volume.retain(&held, &version(volume, &held), Retained { mode, until_ms }).unwrap();
    let none = name(&format!("{folder}/none"));
    let stay = volume.remove_for_good(&[free.clone(), held.clone(), none]).unwrap();
    assert_eq!(stay, [(held.clone(), Hold::Until(until_ms))], "and the others go");
    assert_eq!(volume.stat(&held).unwrap().len, 5);
    assert!(matches!(volume.look(&free), Err(VolumeError::NotFound { .. })));
    assert!(!volume.uncover(&free, 5, None, None).unwrap(), "it is gone for good");
}

/// All versions under a name are removed for good: none becomes current again.
fn what_lies_below_is_removed_as_well(volume: &dyn RemoteVolume, folder: &str, mode: LockMode, day: i64) {
    let [replaced, removed, held] =
        ["replaced", "removed", "held-below"].map(|one| name(&format!("{folder}/{one}")));
    let until_ms = day + 4 * DAY_MS;
    for blob in [&replaced, &removed, &held] {
        put(volume, blob.as_str(), b"these bytes");
        if *blob == held {
            volume.retain(blob, &version(volume, blob), Retained { mode, until_ms }).unwrap();
        }
        volume.remove_all(std::slice::from_ref(blob)).unwrap();
    }
    put(volume, replaced.as_str(), b"others");
    put(volume, held.as_str(), b"others");
    let other = name(&format!("{folder}/replaced-not"));
    put(volume, other.as_str(), b"bytes");
    let stay = volume.remove_for_good(&[replaced.clone(), removed.clone(), held.clone()]).unwrap();
    assert_eq!(stay, [(held.clone(), Hold::Until(until_ms))]);
    for blob in [&replaced, &removed] {
        assert!(matches!(volume.look(blob), Err(VolumeError::NotFound { .. })));
        for len in [6, 11] {
            assert!(!volume.uncover(blob, len, None, None).unwrap(), "{blob} is gone for good");
        }
    }
    assert_eq!(volume.stat(&held).unwrap().len, 11, "what must stay lies there again");
    assert!(!volume.uncover(&held, 6, None, None).unwrap(), "what covered it is gone for good");
    assert_eq!(volume.stat(&other).unwrap().len, 5, "a name that begins so is another");
}

fn what_is_covered_comes_back(volume: &dyn RemoteVolume, folder: &str, mode: LockMode, day: i64) {
    let blob = name(&format!("{folder}/covered"));
    put(volume, blob.as_str(), b"these bytes");
    let wanted = Retained { mode, until_ms: day + 2 * DAY_MS };
    volume.retain(&blob, &version(volume, &blob), wanted).unwrap();
    volume.remove_all(std::slice::from_ref(&blob)).unwrap();
    assert!(matches!(volume.look(&blob), Err(VolumeError::NotFound { .. })), "as it looks");
    put(volume, blob.as_str(), b"others");
    volume.remove_all(std::slice::from_ref(&blob)).unwrap();
    assert!(!volume.uncover(&blob, 7, None, None).unwrap(), "nothing of that length");
    assert!(!volume.uncover(&blob, 11, Some("another"), None).unwrap(), "nothing of that tag");
    assert!(volume.uncover(&blob, 11, None, None).unwrap());
    assert_eq!(volume.look(&blob).unwrap().retained, Some(wanted), "with its retention");
    let bytes = volume.open(&blob).unwrap().read_vec(&blob, 0, 11).unwrap();
    assert_eq!(bytes, b"these bytes");
}

/// Objects of equal length differ by checksum, even if never read before.
fn what_has_the_same_length_is_told_apart(volume: &dyn RemoteVolume, folder: &str) {
    let blob = name(&format!("{folder}/as-long"));
    put(volume, blob.as_str(), b"these bytes");
    let sum = volume.stat(&blob).unwrap().checksum;
    volume.remove_all(std::slice::from_ref(&blob)).unwrap();
    put(volume, blob.as_str(), b"other bytes");
    let other = volume.stat(&blob).unwrap().checksum;
    assert!(volume.keeps_checksums() && sum.is_some() && sum != other);
    assert!(volume.uncover(&blob, 11, None, other).unwrap(), "it lies there");
    assert_eq!(volume.stat(&blob).unwrap().checksum, other);
    assert!(volume.uncover(&blob, 11, None, sum).unwrap());
    assert_eq!(volume.stat(&blob).unwrap().checksum, sum);
    assert!(!volume.uncover(&blob, 11, None, other).unwrap(), "it went for good");
}

/// It is reported, and not as a temporary error.
fn what_lies_below_what_must_stay_does_not(
    volume: &dyn RemoteVolume,
    folder: &str,
    mode: LockMode,
    day: i64,
) {
    let blob = name(&format!("{folder}/locked-over"));
    put(volume, blob.as_str(), b"these bytes");
    volume.remove_all(std::slice::from_ref(&blob)).unwrap();
    put(volume, blob.as_str(), b"others");
    let wanted = Retained { mode, until_ms: day + 2 * DAY_MS };
    volume.retain(&blob, &version(volume, &blob), wanted).unwrap();
    let error = volume.uncover(&blob, 11, None, None).unwrap_err();
    assert!(error.is_unreadable_now() && !error.is_retryable(), "{error}");
    assert_eq!(volume.stat(&blob).unwrap().len, 6);
    assert_eq!(volume.look(&blob).unwrap().retained, Some(wanted));
}
