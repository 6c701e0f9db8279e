//! No plain objects stay in the bucket once everything is encrypted, and none of a destroyed namespace.

use std::fs;

use holdfast_bucket::{Fault, Op};
use holdfast_tests::disk::noise;
use holdfast_tests::{Disk, Server, wait_for};
use serde_json::Value;

use super::{Site, stop};

fn key_status(site: &Site) -> Value {
    let (status, said) = site.maintain(&site.path("repository"), "key", &["status", "--json"]);
    assert!(status.success(), "{said}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error} in {said}"))
}

/// Objects of the bucket that are not encrypted.
fn plain_objects(site: &Site) -> Vec<String> {
    let all = ["containers", "points", "snapshots"].into_iter().flat_map(|kind| site.copies(kind));
    all.filter(|key| !key.ends_with('-')).collect()
}

fn is_found(site: &Site, text: &[u8]) -> bool {
    let objects = site.bucket.keys().into_iter().filter_map(|key| site.bucket.object(&key));
    objects.into_iter().any(|object| object.bytes.windows(text.len()).any(|window| window == text))
}

/// A conversion is over when the bucket has no plain objects, either: before that, it reports what it waits for.
#[test]
fn a_conversion_takes_the_bucket_with_it() {
    let site = Site::plain();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 21, 6 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&data_dir);
    stop(server);
    let text = &noise(21, 6 << 20)[5000..5032];
    assert!(is_found(&site, text), "what is looked for can be found");

    // Everything is encrypted here, and copied; only the plain objects cannot be removed from the bucket.
    site.bucket.fail(Op::Delete, "", usize::MAX, Fault::Refuse(403, "AccessDenied"));
    site.configure("encryption = \"on\"\ns3_plain = true\n");
    let server = site.start(&data_dir);
    wait_for("everything here to be encrypted", || {
        let status = key_status(&site);
        (status["plain_files"] == 0 && status["left_in_bucket"].as_u64() > Some(0)).then_some(())
    });
    site.wait_for_failure(&data_dir, "access was refused");
    assert_eq!(key_status(&site)["plain_accepted"], true, "it is not over");
    let (_, said) = site.maintain(&data_dir, "key", &["status"]);
    assert!(said.contains("still lies in s3://"), "{said}");
    assert!(!plain_objects(&site).is_empty());
    // Until then, a start without s3_plain is refused.
    site.bucket.heal();
    wait_for("the end of it", || (key_status(&site)["plain_accepted"] == false).then_some(()));
    assert_eq!(plain_objects(&site), [""; 0]);
    assert!(!is_found(&site, text));
    site.wait_up_to_date(&data_dir);
    stop(server);
    site.assert_exact(&data_dir);

    // From now on without permission to copy plain blobs; and the bucket suffices for a recovery.
    site.configure("encryption = \"on\"\n");
    let kit = site.export_kit(&data_dir, "kit.txt");
    let new = site.path("new");
    let (status, said) = site.recover(&new, &kit);
    assert!(status.success(), "{said}");
    let server = site.start(&new);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    stop(server);
}

/// Keys change while a server copies: no objects with old ones stay in the bucket, and it can be recovered from
/// with a new kit.
#[test]
fn a_rotation_takes_the_bucket_with_it() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 22, 6 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&data_dir);
    let before: Vec<Vec<u8>> =
        site.copies("containers").iter().map(|key| site.bucket.object(key).unwrap().bytes.to_vec()).collect();
    let (status, said) = site.maintain(&data_dir, "key", &["rotate", "--data-keys"]);
    assert!(status.success(), "{said}");
    wait_for("the end of it", || {
        let keys = key_status(&site)["data_keys"].as_array().unwrap().clone();
        keys.iter().all(|key| key["current"] == true).then_some(())
    });
    // Nothing uses the old keys any more, including the bucket.
    for key in site.copies("containers") {
        let bytes = site.bucket.object(&key).unwrap().bytes.to_vec();
        assert!(!before.contains(&bytes), "{key} is as it was");
    }
    site.wait_up_to_date(&data_dir);
    stop(server);
    site.assert_exact(&data_dir);
    let kit = site.export_kit(&data_dir, "kit.txt");
    let new = site.path("new");
    let (status, said) = site.recover(&new, &kit);
    assert!(status.success(), "{said}");
    let server = site.start(&new);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    stop(server);
}

/// Destroying a namespace removes its containers, restore points and keys from the bucket, at once or when it is
/// reachable again.
#[test]
fn a_destroyed_namespace_goes_from_the_bucket() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 22, 6 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    for (seed, tenant) in [(23, "berlin"), (24, "paris")] {
        server.token(tenant, "backup", &[tenant]);
        let theirs = Disk::of_noise(site.path(tenant), seed, 4 << 20);
        server.agent().run(&["backup", "--namespace", tenant, "--vm", "db", theirs.arg()]).ok();
    }
    site.wait_up_to_date(&data_dir);
    stop(server);
    let old_kit = site.export_kit(&data_dir, "old.txt");
    let tables = |site: &Site| site.copies("keys");
    let points = site.copies("points").len();
    let (before, containers) = (tables(&site), site.copies("containers"));
    assert_eq!(before.len(), 2, "(K8)");

    // At once.
    let destroy =
        |tenant: &str| site.maintain(&data_dir, "namespace", &["destroy", tenant, "--confirm", tenant]);
    let (status, said) = destroy("berlin");
    assert!(status.success() && said.contains("went, too"), "{said}");
    assert_eq!(site.copies("points").len(), points - 1);
    assert!(site.copies("containers").len() < containers.len());
    assert!(
        tables(&site).len() == 2 && tables(&site).iter().all(|table| !before.contains(table)),
        "{:?}",
        tables(&site)
    );
    site.assert_exact(&data_dir);

    // The bucket is unreachable: that is reported, and the next server does it.
    site.bucket.go_away();
    let (status, said) = destroy("paris");
    assert_eq!(status.code(), Some(9), "{said}");
    assert!(said.contains("still to go") && said.contains("no answer came"), "{said}");
    let between = tables(&site);
    site.bucket.heal();
    let server = site.start(&data_dir);
    site.wait_up_to_date(&data_dir);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    stop(server);
    assert_eq!(site.copies("points").len(), points - 2);
    assert!(
        tables(&site).len() == 2 && tables(&site).iter().all(|table| !between.contains(table)),
        "{:?}",
        tables(&site)
    );
    site.assert_exact(&data_dir);
    // The old secrets open nothing that is there.
    let (status, said) = site.recover(&site.path("new"), &old_kit);
    assert_eq!(status.code(), Some(4), "{said}");
}

/// A bucket is not this machine's own disk: unencrypted data is not copied there, and the refusal changes nothing.
#[test]
fn what_is_not_encrypted_is_not_copied() {
    let site = Site::with("");
    let data_dir = site.path("repository");
    stop(Server::start(&data_dir));
    let config = ["--config", site.config.to_str().unwrap()];
    for settings in ["", "encryption = \"on\"\n"] {
        site.configure(settings);
        let (status, said) = Server::options().args(&config).try_start(&data_dir).unwrap_err();
        assert!(!status.success() && said.contains("s3_plain"), "{status}: {said}");
        assert!(said.contains("encryption = \"on\""), "{said}");
        assert!(site.bucket.keys().is_empty(), "{:?}", site.bucket.keys());
        assert!(!data_dir.join("repository.key").exists(), "nothing was changed");
    }
    // Same with a blank folder.
    site.configure("");
    let (status, said) = Server::options().args(&config).try_start(&site.path("blank")).unwrap_err();
    assert!(!status.success() && said.contains("s3_plain"), "{status}: {said}");
    let server = Server::options().args(&config).arg("--s3-plain").start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 9, 5 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_for_points(1);
    stop(server);
    assert!(fs::read_dir(data_dir.join("blobs/keys")).is_err());
}
