//! Keys destroyed with their namespace, and old tables of keys put back.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_tests::disk::assert_same;
use holdfast_tests::repository::{files, give_to, not_of};
use holdfast_tests::server::maintain;
use holdfast_tests::web::get;
use holdfast_tests::{Disk, Server, program, tools};
use serde_json::Value;

use super::{NAMESPACE, Scene, VM, repository_key, stop};

/// Copies the contents of a folder; existing files are unchanged.
pub(super) fn copy_into(from: &Path, to: &Path) {
    for path in files(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        if !target.exists() {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// The id of the data key in a blob's header.
fn data_key(path: &Path) -> String {
    fs::read(path).unwrap()[8..24].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Blobs of a destroyed namespace in a copy name a key that no longer exists; those of the other name existing ones.
fn todays_keys_open_no_copy(copy: &Path, today: &Value) {
    let keys = today["data_keys"].as_array().unwrap().iter();
    let present: Vec<String> = keys.map(|key| key["id"].as_str().unwrap().to_owned()).collect();
    for folder in ["containers", "points"] {
        let wanted = files(&copy.join("blobs").join(folder)).into_iter().map(|path| data_key(&path));
        let (readable, unreadable): (Vec<_>, Vec<_>) = wanted.partition(|key| present.contains(key));
        assert!(!readable.is_empty() && !unreadable.is_empty(), "{folder}: {readable:?} {unreadable:?}");
        assert!(unreadable.iter().all(|key| *key == unreadable[0]), "one namespace's: {unreadable:?}");
    }
}

/// Names of all files in a folder.
fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    files(folder).iter().map(|path| path.file_name().unwrap().to_owned()).collect()
}

#[test]
fn a_destroyed_namespace_cannot_be_read_with_todays_keys() {
    const OTHER: &str = "other";
    let scene = Scene::encrypted();
    let other = Disk::of_noise(scene.path("other.raw"), 12, 3 << 20);
    let server = Server::start(&scene.data_dir);
    server.token("others", "backup", &[OTHER]);
    server.agent().run(&["backup", "--namespace", OTHER, "--vm", "web", other.arg()]).ok();
    let list = server.agent().run(&["list", "--namespace", NAMESPACE, "--vm", VM, "--json"]).ok().summary();
    let held = list["backups"][0]["backup"].as_str().unwrap().to_owned();
    server.agent().run(&["hold", &held, "--namespace", NAMESPACE, "--reason", "a lawsuit"]).ok();
    let destroy =
        |confirm: &str| maintain(&scene.data_dir, "namespace", &["destroy", NAMESPACE, "--confirm", confirm]);
    assert_eq!(destroy(NAMESPACE).0.code(), Some(6), "beside a server");
    stop(server);
    let old_kit = scene.export_kit("old.txt");
    let before = scene.status();
    // A copy of everything but the key, as on another disk.
    let copy = scene.path("copy");
    copy_into(&scene.data_dir.join("blobs"), &copy.join("blobs"));

    let (status, said) = destroy("another");
    assert!(!status.success() && said.contains("nothing was changed"), "{said}");
    let (status, said) = destroy(NAMESPACE);
    assert!(status.code() == Some(4) && said.contains("a lawsuit"), "{status}: {said}");
    scene.restores();
    let server = Server::start(&scene.data_dir);
    server.agent().run(&["hold", &held, "--namespace", NAMESPACE, "--release", "--reason", "settled"]).ok();
    stop(server);
    let (status, said) = destroy(NAMESPACE);
    assert!(status.success() && said.contains("1 restore points of 1 VMs"), "{said}");
    assert!(said.contains("recovery kit") && said.contains("export-kit"), "{said}");

    let after = scene.status();
    assert_ne!(repository_key(&after), repository_key(&before));
    let of = |status: &Value| status["data_keys"].as_array().unwrap().len();
    assert_eq!(of(&after), of(&before) - 1);
    todays_keys_open_no_copy(&copy, &after);
    let earlier = names(&copy.join("blobs/snapshots"));
    let later = names(&scene.data_dir.join("blobs/snapshots"));
    assert!(
        !later.is_empty() && later.iter().all(|name| !earlier.contains(name)),
        "{later:?} of {earlier:?}"
    );
    assert_eq!(scene.blobs(".data-").len(), 1, "what is left is the other namespace's");
    let (status, said) = maintain(&scene.data_dir, "key", &["import", "--kit", old_kit.to_str().unwrap()]);
    assert_eq!(status.code(), Some(4), "{said}");
    let restores_other = |server: &Server| {
        let args = ["restore", "latest", "--namespace", OTHER, "--vm", "web", "--to", "-"];
        assert_same(&other.bytes(), &server.agent().run(&args).ok().stdout);
    };
    let server = Server::start(&scene.data_dir);
    restores_other(&server);
    assert!(get(&server, "/api/v1/audit", &server.admin_token()).text().contains("namespace.destroy"));
    stop(server);

    // Old containers and points, put back: the current keys open none of them.
    for folder in ["containers", "points", "snapshots"] {
        copy_into(&copy.join("blobs").join(folder), &scene.data_dir.join("blobs").join(folder));
    }
    let server = Server::start(&scene.data_dir);
    restores_other(&server);
    let args = ["restore", "latest", "--namespace", NAMESPACE, "--vm", VM, "--to", "-"];
    assert_ne!(server.agent().run(&args).code, Some(0));
    stop(server);
    // The current key file does not open the copy with its own keys either; the old kit does, as SECURITY says.
    let recover = |args: &[&str]| {
        let from = copy.join("blobs");
        let data_dir = scene.path("recovered");
        let args = [&["--from", from.to_str().unwrap()], args].concat();
        maintain(&data_dir, "recover", &args)
    };
    fs::create_dir(scene.path("recovered")).unwrap();
    fs::copy(scene.key_file(), scene.path("recovered").join("repository.key")).unwrap();
    let (status, said) = recover(&[]);
    assert_eq!(status.code(), Some(4), "{said}");
    let (status, said) = recover(&["--kit", old_kit.to_str().unwrap()]);
    assert!(status.success(), "{said}");
}

#[test]
fn an_older_table_of_keys_is_noticed() {
    let scene = Scene::encrypted();
    let copy = scene.path("keys");
    copy_into(&scene.data_dir.join("blobs/keys"), &copy);
    let kit = scene.export_kit("kit.txt");
    scene.key(&["remove", "2"]);
    let keys = scene.data_dir.join("blobs/keys");
    fs::remove_dir_all(&keys).unwrap();
    copy_into(&copy, &keys);
    scene.refuses(&[], &["older version", "accept-older"]);
    let (status, said) = maintain(&scene.data_dir, "key", &["import", "--kit", kit.to_str().unwrap()]);
    assert_eq!(status.code(), Some(4), "{said}");
    scene.key(&["accept-older"]);
    scene.restores();
}

/// A kit that could not be delivered must not count as one.
#[test]
fn a_kit_whose_page_cannot_be_written_is_taken_back() {
    let scene = Scene::new(&["--encrypt"]);
    let before = scene.status();
    let mut export = program("holdfast-server");
    export.args(["key", "export-kit", "--data-dir"]).arg(&scene.data_dir);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = export.stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("export another one"), "{said}");
    let after = scene.status();
    assert_eq!((&after["slots"], &after["recovery_kit"]), (&before["slots"], &false.into()));
}

/// A server that runs as a user of its own cannot open files of root.
#[test]
fn what_root_makes_offline_belongs_to_the_server() {
    const UID: u32 = 54_321;
    if !rustix::process::geteuid().is_root() {
        return tools::skip("only root can give files to another user");
    }
    let scene = Scene::new(&["--encrypt"]);
    give_to(&scene.data_dir, UID);
    fs::remove_dir_all(scene.data_dir.join("blobs/index")).unwrap();
    fs::remove_dir_all(scene.data_dir.join("blobs/points")).unwrap();
    fs::remove_file(scene.data_dir.join("repository.lock")).unwrap();
    let kit = scene.data_dir.with_extension("kit");
    for (command, args) in [
        ("check", &["--repair"][..]),
        ("rebuild-index", &[]),
        ("token", &["create", "--name", "new", "--role", "backup"]),
        ("key", &["rotate"]),
        ("key", &["export-kit"]),
        ("key", &["import", "--kit", kit.to_str().unwrap()]),
    ] {
        if args.contains(&"import") {
            fs::remove_file(scene.data_dir.join("repository.key")).unwrap();
        }
        let (status, said) = maintain(&scene.data_dir, command, args);
        assert!(status.success(), "{command}: {said}");
        assert_eq!(not_of(&scene.data_dir, UID), [""; 0].map(PathBuf::from), "{command} {args:?}");
        fs::write(&kit, said).unwrap();
    }
    // A catalog rebuilt from the restore points alone.
    fs::remove_dir_all(scene.data_dir.join("blobs/snapshots")).unwrap();
    for name in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
        let _ = fs::remove_file(scene.data_dir.join(name));
    }
    let blobs = scene.data_dir.join("blobs");
    let (status, said) = maintain(&scene.data_dir, "recover", &["--from", blobs.to_str().unwrap()]);
    assert!(status.success(), "{said}");
    assert_eq!(not_of(&scene.data_dir, UID), [""; 0].map(PathBuf::from), "{said}");
}
