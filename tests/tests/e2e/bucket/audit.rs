//! Objects deleted, truncated, replaced or archived out of band: found, named with the restore points that need them,
//! and repaired if possible.

use std::fs;
use std::path::Path;

use holdfast_tests::server::maintain;
use holdfast_tests::web::get;
use holdfast_tests::{Disk, Server, tasks, wait_for};
use serde_json::{Value, json};

use super::{Site, stop};

/// VMs in the order of their backups, and so of their containers. Each is named for the fate of its object.
const VMS: [&str; 4] = ["gone", "cut", "other", "cold"];

/// Four VMs with a data container each; the keys of the objects, in that order.
fn scene(settings: &str) -> (Site, Server, Vec<Disk>, Vec<String>) {
    let site = Site::with(settings);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let mut disks = Vec::new();
    for (seed, vm) in (30..).zip(VMS) {
        let disk = Disk::of_noise(site.path(&format!("{vm}.raw")), seed, 3 << 20);
        server.agent().back_up(vm, &[disk.arg()]);
        disks.push(disk);
    }
    site.wait_up_to_date(&data_dir);
    let mut keys = site.copies("containers");
    keys.retain(|key| key.contains(".data"));
    assert_eq!(keys.len(), VMS.len(), "{keys:?}");
    (site, server, disks, keys)
}

/// Deletes one, truncates one, replaces the third by the first's content, and archives the fourth.
fn spoil(site: &Site, keys: &[String]) {
    let [gone, cut, other, cold] = keys else { panic!("{keys:?}") };
    let bytes = |key: &str| site.bucket.object(key).unwrap().bytes;
    let (of_gone, of_cut, len) = (bytes(gone), bytes(cut), bytes(other).len());
    site.bucket.delete(gone);
    site.bucket.replace(cut, of_cut.slice(..of_cut.len() / 2));
    // Same length as before: only its content differs.
    site.bucket.replace(other, of_gone.iter().copied().chain([0; 4096]).take(len).collect::<Vec<u8>>());
    site.bucket.set_class(cold, "DEEP_ARCHIVE");
}

fn audit(server: &Server) -> (Value, Vec<String>) {
    let task = tasks::run(server, "audit", &json!({}));
    let log =
        task["log"].as_array().unwrap().iter().map(|line| tasks::text(line, "text").to_owned()).collect();
    (task["figures"].clone(), log)
}

/// The log line about an object.
fn line<'a>(log: &'a [String], key: &str) -> &'a str {
    let name = key.strip_prefix("site/").unwrap();
    log.iter().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {log:#?}"))
}

fn metric(server: &Server, name: &str) -> Option<f64> {
    let text = get(server, "/metrics", &server.admin_token()).text();
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[test]
fn what_lies_here_is_copied_again_and_said() {
    let (site, server, _disks, keys) = scene("encryption = \"on\"\n");
    let data_dir = site.path("repository");
    let (figures, log) = audit(&server);
    assert!(log.iter().any(|line| line.contains("all as they should be")), "{log:?}");
    assert_eq!((&figures["missing"], &figures["copied_again"]), (&json!(0), &json!(0)));
    spoil(&site, &keys);
    site.bucket.replace("site/holiday/Photo 1.jpg", "of others");
    let (figures, log) = audit(&server);
    for (key, (vm, what)) in keys.iter().zip([
        ("gone", "it is gone from the bucket; the blob here is sound and is copied again"),
        ("cut", "is not its length; the blob here is sound"),
        ("other", "another content lies in the bucket"),
        ("cold", "storage class DEEP_ARCHIVE"),
    ]) {
        let line = line(&log, key);
        assert!(line.contains(what) && line.contains(&format!("VM {vm:?}")), "{line}");
        for other in VMS.into_iter().filter(|other| *other != vm) {
            assert!(!line.contains(&format!("VM {other:?}")), "{line}");
        }
    }
    assert_eq!(
        (&figures["copied_again"], &figures["archived"], &figures["lost"]),
        (&json!(3), &json!(1), &json!(0))
    );
    assert_eq!(figures["strangers"], 1);
    site.wait_up_to_date(&data_dir);
    site.assert_same(&data_dir);
    let status = site.status(&data_dir);
    assert_eq!(
        (&status["flaws"]["count"], &status["flaws"]["first"][0]["lost"]),
        (&json!(1), &json!(false)),
        "{status}"
    );
    assert!(status["audit"]["verdict"].as_str().unwrap().contains("1 gone; 1 of another length"), "{status}");
    assert_eq!(metric(&server, "holdfast_bucket_flawed_objects"), Some(1.0));
    // Someone restored it.
    site.bucket.set_class(&keys[3], "STANDARD");
    let (figures, _) = audit(&server);
    assert_eq!((&figures["back"], &site.status(&data_dir)["flaws"]["count"]), (&json!(1), &json!(0)));
    assert!(site.bucket.object("site/holiday/Photo 1.jpg").is_some());
    stop(server);
}

/// An object without another copy is damage of the restore points that need it, until it is back or backed up again.
#[test]
fn what_lies_nowhere_else_is_damage_until_it_heals() {
    let (site, server, disks, keys) =
        scene("encryption = \"on\"\ns3_move_after_days = 0\ns3_move_until_free = 100\n");
    let data_dir = site.path("repository");
    let agent = server.agent();
    agent.run(&["reclaim"]).ok();
    assert_eq!(site.status(&data_dir)["moved_containers"], 4);
    audit(&server);
    let whole = site.bucket.object(&keys[1]).unwrap().bytes;
    spoil(&site, &keys);

    let (figures, log) = audit(&server);
    assert_eq!(
        (&figures["lost"], &figures["archived"], &figures["copied_again"]),
        (&json!(3), &json!(1), &json!(0))
    );
    for (key, vm) in keys.iter().zip(VMS).take(3) {
        assert!(line(&log, key).contains("it lies nowhere else: damage"), "{log:#?}");
        let named =
            log.iter().any(|line| line.starts_with("DAMAGED: ") && line.contains(&format!("VM {vm:?}")));
        assert!(named, "{vm} in {log:#?}");
    }
    assert!(line(&log, &keys[3]).contains("VM \"cold\""), "{log:#?}");
    assert!(
        !log.iter().any(|line| line.starts_with("DAMAGED: ") && line.contains("VM \"cold\"")),
        "{log:#?}"
    );
    let damage = || get(&server, "/api/v1/damage", &server.admin_token()).json();
    assert_eq!(damage()["restore_points"], 3);
    // A reader gets an error, and no wrong bytes.
    let mut said = String::new();
    for vm in VMS {
        let ran = agent.run(&["restore", "latest", "--vm", vm, "--to", "-", "--retry-for", "0s"]);
        assert!(!ran.succeeded(), "{vm}");
        said = ran.said();
    }
    // The last one is the archived one: nothing of it is lost.
    assert!(said.contains("lies in an archive (Glacier)") && said.contains("--thaw"), "{said}");

    // One is sent again, one put back, one restored from the archive; a restart forgets none of it.
    agent.back_up("gone", &[disks[0].arg()]);
    assert_eq!(agent.read_back("gone"), disks[0].bytes());
    stop(server);
    let server = site.start(&data_dir);
    let agent = server.agent();
    site.bucket.replace(&keys[1], whole);
    site.bucket.set_class(&keys[3], "STANDARD");
    let (figures, log) = audit(&server);
    assert!(line(&log, &keys[1]).contains("in the bucket again, as it should be"), "{log:#?}");
    assert_eq!((&figures["back"], &figures["lost"]), (&json!(2), &json!(2)), "{log:#?}");
    for (vm, disk) in [("gone", &disks[0]), ("cut", &disks[1]), ("cold", &disks[3])] {
        assert_eq!(agent.read_back(vm), disk.bytes(), "{vm}");
    }
    let damage = || get(&server, "/api/v1/damage", &server.admin_token()).json();
    wait_for("the damage of one", || (damage()["restore_points"] == 1).then_some(()));
    agent.back_up("other", &[disks[2].arg()]);
    wait_for("no damage", || (damage()["restore_points"] == 0).then_some(()));
    assert_eq!(agent.read_back("other"), disks[2].bytes());
    stop(server);
}

fn run_audit(site: &Site, data_dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let (status, said) =
        maintain(data_dir, "tier", &[&["audit", "--config", site.config.to_str().unwrap()], args].concat());
    (status.code(), said)
}

/// The command, without a server and beside one.
#[test]
fn the_command_says_what_it_finds_by_its_exit_code() {
    let (site, server, _disks, keys) =
        scene("encryption = \"on\"\ns3_move_after_days = 0\ns3_move_until_free = 100\n");
    let data_dir = site.path("repository");
    let ended = || {
        tasks::all(&server).iter().filter(|task| task["kind"] == "audit" && tasks::has_ended(task)).count()
    };
    let before = ended();
    let (code, said) = run_audit(&site, &data_dir, &[]);
    assert!(code == Some(0) && said.contains("the running server begins the audit"), "{said}");
    wait_for("the audit that was asked for", || (ended() > before).then_some(()));
    stop(server);

    site.bucket.delete(&keys[0]);
    let (code, said) = run_audit(&site, &data_dir, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("copied again") && said.contains("VM \"gone\""), "{said}");
    assert!(site.bucket.object(&keys[0]).is_some(), "it does not wait for the next server");

    let server = site.start(&data_dir);
    server.agent().run(&["reclaim"]).ok();
    stop(server);
    site.bucket.delete(&keys[1]);
    let (code, said) = run_audit(&site, &data_dir, &["--json"]);
    // Progress is printed to standard error.
    let said = said.lines().find(|line| line.starts_with('{')).unwrap_or(&said);
    let said: Value = serde_json::from_str(said).unwrap_or_else(|error| panic!("{error} in {said}"));
    assert_eq!(
        (code, &said["sound"], &said["figures"]["lost"]),
        (Some(5), &json!(false), &json!(1)),
        "{said}"
    );
    assert!(said["lines"].to_string().contains("DAMAGED: VM \\\"cut\\\""), "{said}");
    // Without a bucket there is nothing to audit.
    let other = site.path("other");
    let server = Server::start(&other);
    stop(server);
    fs::write(site.path("empty.toml"), "").unwrap();
    let empty = site.path("empty.toml");
    let (status, said) = maintain(&other, "tier", &["audit", "--config", empty.to_str().unwrap()]);
    assert!(!status.success() && said.contains("no bucket has copies"), "{said}");
}
