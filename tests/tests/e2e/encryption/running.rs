//! Keys of an encrypted repository while its server runs, and a server that runs without them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use holdfast_tests::disk::assert_same;
use holdfast_tests::proxy::Proxy;
use holdfast_tests::repository::files;
use holdfast_tests::server::maintain;
use holdfast_tests::web::get;
use holdfast_tests::{Disk, Server, binaries, tasks};
use serde_json::{Value, json};

use super::keys::copy_into;
use super::{NAMESPACE, Scene, VM, read_back, repository_key, stop, wait_until_converted};
use crate::end_to_end::{create, new_key};

/// Runs `holdfast-server key …` with settings of its own.
fn key_with(scene: &Scene, passphrase: &PathBuf, args: &[&str]) -> (ExitStatus, String) {
    let mut command = Command::new(binaries().join("holdfast-server"));
    command.arg("key").args(args).arg("--data-dir").arg(&scene.data_dir);
    command.env("HOLDFAST_KEY_PASSPHRASE_FILE", passphrase);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status, text.concat())
}

#[test]
fn keys_are_changed_while_the_server_runs() {
    let scene = Scene::encrypted();
    let server = Server::start(&scene.data_dir);
    let before = scene.status();
    let old_kit = scene.export_kit("old.txt");
    assert_eq!(scene.status()["recovery_kit"], true);
    let encryption = || get(&server, "/api/v1/server", &server.admin_token()).json()["encryption"].clone();
    assert!(encryption()["reminder"].is_null(), "the server knows of the kit");

    // A passphrase, and a command that prints it in place of the server's key file: neither may lock the server out.
    let passphrase = scene.path("passphrase");
    fs::write(&passphrase, "correct horse battery staple\n").unwrap();
    scene.key(&["add-passphrase", "--passphrase-file", passphrase.to_str().unwrap()]);
    for args in [&["remove", "1"][..], &["rotate"]] {
        let (status, said) = key_with(&scene, &passphrase, args);
        assert_eq!(status.code(), Some(4), "{said}");
        assert!(
            said.contains("settings of the running server") && said.contains("nothing was changed"),
            "{said}"
        );
    }
    assert_eq!(scene.status()["slots"].as_array().unwrap().len(), 3);
    scene.key(&["remove", "3"]);

    // A new repository key: the server continues with it, and old kits open nothing.
    scene.key(&["rotate"]);
    let rotated = repository_key(&scene.status());
    assert_ne!(rotated, repository_key(&before));
    assert_eq!(encryption()["repository_key"], rotated);
    let (status, said) = maintain(&scene.data_dir, "key", &["import", "--kit", old_kit.to_str().unwrap()]);
    assert_eq!(status.code(), Some(4), "{said}");

    // New data keys in the middle of a backup: the part written before stays readable, and the old keys are dropped.
    let other = Disk::of_noise(scene.path("other.raw"), 10, 24 << 20);
    let proxy = Proxy::holding(server.grpc(), 8 << 20);
    let backup = ["backup", "--namespace", NAMESPACE, "--vm", "other", other.arg()];
    let run = server.agent().through(proxy.address()).start(&backup);
    crate::crash::wait_until_sending(&server, 4 << 20);
    scene.key(&["rotate", "--data-keys"]);
    proxy.release();
    run.wait().ok();
    wait_until_converted(&scene);
    assert_eq!(scene.status()["server"]["done"], true);
    assert_same(&scene.disk.bytes(), &read_back(&server, "latest"));
    let args = ["restore", "latest", "--namespace", NAMESPACE, "--vm", "other", "--to", "-"];
    assert_same(&other.bytes(), &server.agent().run(&args).ok().stdout);
    assert_ne!(scene.status()["data_keys"], before["data_keys"]);

    // The same for one namespace alone.
    let keys_of_namespace = |status: &Value| {
        let all = status["data_keys"].as_array().unwrap().clone();
        let (of_it, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|key| !key["namespace"].is_null());
        (json!(of_it), json!(others))
    };
    let before = keys_of_namespace(&scene.status());
    let (status, said) = maintain(&scene.data_dir, "key", &["rotate", "--data-key-of", "absent"]);
    assert!(!status.success() && said.contains("there is no namespace \"absent\""), "{said}");
    assert_eq!(keys_of_namespace(&scene.status()), before);
    scene.key(&["rotate", "--data-key-of", NAMESPACE]);
    wait_until_converted(&scene);
    let after = keys_of_namespace(&scene.status());
    assert!(after.0 != before.0 && after.1 == before.1, "{before:?} {after:?}");
    assert_same(&scene.disk.bytes(), &read_back(&server, "latest"));

    // The key file is lost, and a kit creates another: the server does not stop for it.
    let kit = scene.export_kit("new.txt");
    fs::remove_file(scene.key_file()).unwrap();
    scene.key(&["import", "--kit", kit.to_str().unwrap()]);
    let audit = get(&server, "/api/v1/audit", &server.admin_token()).text();
    for action in ["key.export-kit", "key.add", "key.remove", "key.rotate", "key.import"] {
        assert!(audit.contains(action), "{action} is in the audit log: {audit}");
    }
    server.kill();
    assert_same(&scene.disk.bytes(), &read_back(&Server::start(&scene.data_dir), "latest"));
    let (status, said) = maintain(&scene.data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
}

/// Names and contents of all files of the volume.
fn lies_there(scene: &Scene) -> Vec<(PathBuf, Vec<u8>)> {
    let blobs = scene.data_dir.join("blobs");
    files(&blobs).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Asserts that all other requests are refused, with the reason and what to do.
fn all_else_is_refused(scene: &Scene, server: &Server, point: &str, key: &str) {
    let why = ["--without-keys", "Nothing is damaged", key];
    let disk = scene.disk.arg();
    let namespace = ["--namespace", NAMESPACE];
    for args in [
        &["backup", "--vm", VM, disk][..],
        &["restore", "latest", "--vm", VM, "--to", "-"],
        &["verify", "latest", "--vm", VM],
        &["delete", point, "--yes", "--reason", "a test"],
        &["hold", point, "--reason", "a test"],
    ] {
        let (command, rest) = args.split_first().unwrap();
        let args = [&[*command], &namespace[..], rest].concat();
        server.agent().run(&args).fails(8, &why);
    }
    server.agent().run(&["scrub"]).fails(8, &why);
    for kind in ["reclaim", "scrub", "verify"] {
        let answer = tasks::try_start(server, kind, &json!({}));
        assert!(answer.status >= 400 && answer.text().contains("--without-keys"), "{}", answer.text());
    }
}

#[test]
fn a_server_without_keys_serves_the_catalog_and_changes_nothing() {
    let scene = Scene::encrypted();
    let key = repository_key(&scene.status());
    let aside = scene.path("aside.key");
    fs::rename(scene.key_file(), &aside).unwrap();
    scene.refuses(&[], &["--without-keys"]);
    for crashed in [false, true] {
        if crashed {
            // Leftovers of a crash are removed by a start with the keys.
            fs::rename(&aside, scene.key_file()).unwrap();
            Server::start(&scene.data_dir).kill();
            fs::rename(scene.key_file(), &aside).unwrap();
        }
        let before = lies_there(&scene);
        let server = Server::options().arg("--without-keys").start(&scene.data_dir);
        let (admin, agent) = (server.admin_token(), server.agent());
        // Data that the catalog has.
        let list = agent.run(&["list", "--namespace", NAMESPACE, "--vm", VM, "--json"]).ok().summary();
        let point = list["backups"][0]["backup"].as_str().unwrap().to_owned();
        assert!(!agent.report().is_empty());
        for page in [
            "server",
            "vms",
            "backups",
            "tokens",
            "audit",
            "storage",
            "namespaces",
            "damage",
            "jobs",
            "runs",
            "totals",
            "details",
            "capacity",
            "disks",
            "tasks",
            "schedules",
            "activity",
            "attribution",
        ] {
            let answer = get(&server, &format!("/api/v1/{page}"), &admin);
            assert_eq!(answer.status, 200, "{page}: {}", answer.text());
        }
        let name = format!("made-without-{crashed}");
        server.token(&name, "restore", &[NAMESPACE]);
        assert!(get(&server, "/api/v1/audit", &admin).text().contains("token.create"));
        all_else_is_refused(&scene, &server, &point, &key);
        let ready = get(&server, "/readyz", "");
        assert!(ready.status == 503 && ready.text().contains("without the keys"), "{}", ready.text());
        let damage = get(&server, "/api/v1/damage", &admin).text();
        assert!(!damage.contains(VM), "nothing is damaged: {damage}");
        let metrics = get(&server, "/metrics", &admin).text();
        assert!(metrics.contains("holdfast_not_ready{reason=\"locked\"} 1"), "{metrics}");
        let (status, said) = maintain(&scene.data_dir, "key", &["rotate"]);
        assert!(!status.success(), "{said}");
        stop(server);
        assert_eq!(lies_there(&scene), before, "nothing on the volume was changed");
    }
    fs::rename(&aside, scene.key_file()).unwrap();
    scene.restores();
    let (status, said) = maintain(&scene.data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
    // An unencrypted repository needs no such mode.
    let plain = Scene::new(&[]);
    let (status, said) = Server::options().arg("--without-keys").try_start(&plain.data_dir).unwrap_err();
    assert!(!status.success() && said.contains("not encrypted"), "{said}");
}

#[test]
fn errors_name_the_command_and_the_way_out() {
    let scene = Scene::encrypted();
    let (status, said) = Server::options()
        .args(&["--key-command", "nosuchvault get --token=hidden"])
        .try_start(&scene.data_dir)
        .unwrap_err();
    assert_eq!(status.code(), Some(4), "{said}");
    assert!(
        said.contains("\"nosuchvault\"") && !said.contains("hidden") && !said.contains("/bin/sh\""),
        "{said}"
    );
    // A failed recovery leaves nothing, and says what a recovery can do.
    let (blobs, data_dir) = (scene.data_dir.join("blobs"), scene.path("a/new/folder"));
    let home = scene.path("elsewhere");
    fs::create_dir(&home).unwrap();
    let copy = home.join("blobs");
    for path in files(&blobs) {
        let to = copy.join(path.strip_prefix(&blobs).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path, to).unwrap();
    }
    for (from, word) in [(&copy, "--kit FILE"), (&home, "holds nothing of a repository")] {
        let (status, said) = maintain(&data_dir, "recover", &["--from", from.to_str().unwrap()]);
        assert!(!status.success() && said.contains(word) && !said.contains("key import"), "{said}");
        assert!(!scene.path("a").exists(), "{said}");
    }
}

/// Its content is encrypted with the agents' key, which the server never had; the rest is destroyed like any other's.
#[test]
fn an_end_to_end_namespace_is_destroyed_as_any_other() {
    const VAULT: &str = "vault";
    let scene = Scene::encrypted();
    let (agents_key, id) = new_key(scene.disk.path().parent().unwrap(), "vault.key");
    let server = Server::start(&scene.data_dir);
    create(&scene.data_dir, VAULT, &id);
    let with_key = ["--namespace", VAULT, "--namespace-key", agents_key.to_str().unwrap()];
    let other = Disk::of_noise(scene.path("other.raw"), 12, 3 << 20);
    let run = |server: &Server, args: &[&str]| server.agent().run(&[args, &with_key[..]].concat());
    run(&server, &["backup", "--vm", "safe", other.arg()]).ok();
    assert_same(
        &other.bytes(),
        &run(&server, &["restore", "latest", "--vm", "safe", "--to", "-"]).ok().stdout,
    );
    stop(server);
    let before = scene.status();
    let copy = scene.path("copy");
    copy_into(&scene.data_dir.join("blobs"), &copy);
    let (status, said) = maintain(&scene.data_dir, "namespace", &["destroy", VAULT, "--confirm", VAULT]);
    assert!(status.success() && said.contains("1 restore points of 1 VMs"), "{said}");
    let of = |status: &serde_json::Value| status["data_keys"].as_array().unwrap().len();
    assert_eq!(of(&scene.status()), of(&before) - 1);

    // Put back, it is useless even to an agent that still has its key; and the namespace continues as an empty one.
    for folder in ["containers", "points"] {
        copy_into(&copy.join(folder), &scene.data_dir.join("blobs").join(folder));
    }
    let server = Server::start(&scene.data_dir);
    assert_ne!(run(&server, &["restore", "latest", "--vm", "safe", "--to", "-"]).code, Some(0));
    let new = Disk::of_noise(scene.path("new.raw"), 13, 3 << 20);
    run(&server, &["backup", "--vm", "new", new.arg()]).ok();
    assert_same(&new.bytes(), &run(&server, &["restore", "latest", "--vm", "new", "--to", "-"]).ok().stdout);
    assert_same(&scene.disk.bytes(), &read_back(&server, "latest"));
    stop(server);
}
