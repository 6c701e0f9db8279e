//! Runbooks in prose: their commands are run as given in `docs/operations`, in its order, with its manual steps between
//! them; as the server's user and as root, with and without a bucket. Those in blocks are tested in `documented.rs`.

use std::fs;
use std::path::Path;

use holdfast_tests::documents::{commands_of, root};
use holdfast_tests::repository::{Class, containers_of, copy_folder};

use super::documented::{Scene, Setting};

/// The text of a section of `docs/operations`, as one line.
fn section(heading: &str) -> String {
    let pages = fs::read_dir(root().join("docs/operations")).unwrap();
    let text: String = pages.map(|page| fs::read_to_string(page.unwrap().path()).unwrap()).collect();
    let begins = |line: &str| line.trim_start_matches('#').trim() == heading && line.starts_with('#');
    let lines =
        text.lines().skip_while(|line| !begins(line)).skip(1).take_while(|line| !line.starts_with('#'));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    assert!(!words.is_empty(), "there is no section {heading:?}");
    words.join(" ")
}

/// The steps of a runbook, which are in its section in this order.
struct Runbook {
    heading: &'static str,
    left: String,
}

impl Runbook {
    fn of(heading: &'static str) -> Self {
        Self { heading, left: section(heading) }
    }

    /// Skips past these words, which describe a manual step.
    fn says(&mut self, words: &str) {
        let at = self.left.find(words).unwrap_or_else(|| panic!("{}: no {words:?} here", self.heading));
        self.left.drain(..at + words.len());
    }

    fn step(&mut self, scene: &mut Scene, line: &str) -> Result<(), String> {
        self.says(line);
        let commands = commands_of(self.heading, &format!("```\n{line}\n```"), &mut 0);
        assert_eq!(commands.len(), 1, "{line}");
        scene.run(&commands[0]).map_err(|why| format!("{}: {line}: {why}", self.heading))
    }

    fn run(&mut self, scene: &mut Scene, line: &str) {
        self.step(scene, line).unwrap_or_else(|why| panic!("{:?}: {why}", scene.setting));
    }
}

/// Runs `play` in each setup, and checks that the server starts again afterwards.
fn in_each(play: impl Fn(&mut Scene)) {
    for setting in Setting::all() {
        let mut scene = Scene::new(setting);
        play(&mut scene);
        scene.ends_well().unwrap();
    }
}

#[test]
fn what_can_be_read_is_got_back() {
    in_each(|scene| {
        scene.wait_for_copies();
        for container in containers_of(scene.server().data_dir(), Class::Data) {
            container.flip_bit(container.len / 2);
        }
        let mut book = Runbook::of("Getting back what can be read");
        book.says("A restore of damaged data ends with exit code 5");
        let to = scene.path("output/tried.raw");
        let tried = scene.server().agent().run(&[
            "restore",
            "latest",
            "--vm",
            "web",
            "--disk",
            "web-root",
            "--to",
            to.to_str().unwrap(),
        ]);
        tried.fails(5, &[]);
        book.run(scene, "systemctl stop holdfast");
        let repaired = book.step(scene, "holdfast-server check --repair --data-dir /var/lib/holdfast");
        // The bucket may have all of it; otherwise something is lost until the next backup.
        assert!(
            repaired.is_ok() || repaired.as_ref().unwrap_err().contains("exit status: 5"),
            "{repaired:?}"
        );
        book.run(scene, "systemctl start holdfast");
        book.says("back up every VM again");
        let disk = scene.path("disks/web-root");
        scene.server().agent().back_up("web", &[disk.to_str().unwrap(), "--accept-change"]);
        book.run(scene, "holdfast restore latest --vm web --to web.raw --keep-going");
        assert!(fs::read(scene.path("output/web.raw")).unwrap() == fs::read(disk).unwrap());
    });
}

#[test]
fn a_certificate_comes_back_or_is_renewed() {
    in_each(|scene| {
        Runbook::of("Protecting the repository itself")
            .run(scene, "holdfast-server snapshot --to /mnt/elsewhere/holdfast");
        let (tls, saved) = (scene.path("repository/tls"), scene.path("elsewhere/holdfast/tls"));
        let fingerprint = scene.server().fingerprint();
        let mut book = Runbook::of("When the certificate is renewed or lost");
        scene.stop();
        fs::remove_file(tls.join("cert.pem")).unwrap();
        let said = scene.try_start().unwrap_err();
        assert!(said.contains("cert.pem"), "{said}");
        book.says("Put both back from a backup of the server");
        copy_folder(&saved, &tls);
        book.says("as files of the service's user");
        scene.give(&tls);
        scene.start();
        assert_eq!(scene.server().fingerprint(), fingerprint);

        book.says("remove `tls/cert.pem`, `tls/key.pem` and `tls/fingerprint` from the data folder");
        scene.stop();
        for name in ["cert.pem", "key.pem", "fingerprint"] {
            fs::remove_file(tls.join(name)).unwrap();
        }
        scene.start();
        assert_ne!(scene.server().fingerprint(), fingerprint);
        let agent = scene.server().agent();
        agent.trusting(&fingerprint).run(&["list"]).fails(4, &[]);
        agent.run(&["list"]).ok();
    });
}

#[test]
fn a_volume_that_was_copied_in_the_documented_order_is_recovered() {
    in_each(|scene| {
        scene.wait_for_copies();
        let mut book = Runbook::of("Protecting the repository itself");
        let (blobs, copy) = (scene.path("repository/blobs"), scene.path("lost/blobs"));
        let take = |names: &[&str]| {
            for from in names.iter().map(|name| blobs.join(name)).filter(|from| from.exists()) {
                let to = copy.join(from.file_name().unwrap());
                fs::create_dir_all(&copy).unwrap();
                if from.is_dir() { copy_folder(&from, &to) } else { copy_file(&from, &to) }
            }
        };
        book.says("rsync -a --delete blobs/points blobs/snapshots blobs/repository");
        take(&["points", "snapshots", "repository"]);
        book.says("rsync -a --delete blobs/containers");
        book.says("rsync -a --delete blobs/ends");
        take(&["containers", "ends"]);
        book.run(scene, "holdfast-server snapshot --to /mnt/elsewhere/holdfast");
        Runbook::of("When everything but the volume is lost")
            .run(scene, "holdfast-server recover --from /mnt/disk/blobs --snapshot /mnt/elsewhere/holdfast");
    });
}

fn copy_file(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap();
}

#[test]
fn a_lost_key_is_replaced_with_the_recovery_kit() {
    in_each(|scene| {
        let mut book = Runbook::of("The recovery kit");
        book.run(scene, "holdfast-server key export-kit --data-dir /var/lib/holdfast");
        let key = scene.path("encrypted/repository.key");
        fs::remove_file(&key).unwrap();
        book.says("The key is lost and the server is not:");
        book.run(scene, "holdfast-server key import --kit kit.txt");
        assert!(key.exists());
        scene.encrypted_server().unwrap();
    });
}
