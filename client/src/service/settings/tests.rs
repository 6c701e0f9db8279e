//! The agent's file: what it means, and what is refused.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

const WEB: &str = "[[vm]]\nname = 'web'\ndisks = ['/vms/web.raw']\n";

fn parse(text: &str) -> AgentSettings {
    AgentSettings::parse(text).unwrap()
}

#[test]
fn keys_before_the_vms_are_defaults() {
    let text = "at-once = 3\nrate = '50MB'\nrate-windows = ['mon-fri 08:00-18:00 5MiB']\nschedule = '30 2 * * *'\n\
                time-zone = 'Europe/Berlin'\nretry-pause = '1m'\nbefore = 'snap'\n";
    let settings = parse(&format!(
        "{text}{WEB}[[vm]]\nname = 'db'\njob = 'hourly'\nschedule = '@hourly'\nbefore = 'pg'\ndisks = [\n\
         {{ path = 'data=/vms/db', format = 'qcow2', allow-backing = true }}, 'log=nbd://h/log']\n"
    ));
    assert_eq!((settings.at_once, settings.rates.otherwise), (3, ByteSize(50_000_000)));
    let [web, db] = &settings.entries[..] else { panic!("{settings:?}") };
    assert_eq!((web.rules.job.as_str(), web.rules.before.as_deref()), ("nightly", Some("snap")));
    assert_eq!((web.rules.retries, web.rules.retry_pause), (2, Duration::from_secs(60)));
    assert_eq!(web.schedule.zone_name(), "Europe/Berlin");
    assert_eq!((db.rules.before.as_deref(), db.schedule.expression()), (Some("pg"), "@hourly"));
    let vms = db.vms().unwrap();
    let opening = Opening { format: Some(Format::Qcow2), allow_backing: true };
    assert_eq!(vms[0].disks[0].1, opening);
    assert_eq!(vms[0].disks[1].0.address(), Some("nbd://h/log"));
}

#[test]
fn a_pattern_means_a_vm_for_each_part() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display();
    for name in ["web.qcow2", "db.qcow2", "mail.qcow2"] {
        std::fs::write(folder.path().join(name), "x").unwrap();
    }
    let settings = parse(&format!(
        "schedule = '@daily'\n[[vm]]\nname = 'kvm-*'\ndisks = ['root={root}/*.qcow2']\n\
         [[vm]]\nname = 'kvm-db'\ndisks = ['{root}/*.qcow2']\n[[vm]]\nname = 'none'\ndisks = ['{root}/*.raw']\n"
    ));
    let vms = settings.vms();
    let names =
        |at: usize| -> Vec<String> { vms[at].1.as_ref().unwrap().iter().map(|vm| vm.name.clone()).collect() };
    assert_eq!(names(0), ["kvm-mail", "kvm-web"], "a VM with an entry of its own is not the pattern's");
    assert_eq!(vms[0].1.as_ref().unwrap()[0].disks[0].0.name, "root");
    assert_eq!(names(1), ["kvm-db"]);
    let disks = &vms[1].1.as_ref().unwrap()[0].disks;
    assert_eq!(disks.iter().map(|disk| disk.0.name.as_str()).collect::<Vec<_>>(), ["db", "mail", "web"]);
    assert!(vms[2].1.as_ref().unwrap()[0].problem.as_ref().unwrap().contains("none of its paths"));
    std::fs::remove_file(folder.path().join("web.qcow2")).unwrap();
    std::fs::remove_file(folder.path().join("mail.qcow2")).unwrap();
    assert!(settings.vms()[0].1.as_ref().unwrap_err().contains("no VM"), "that is not to pass for all done");
}

#[test]
fn a_vm_of_which_a_folder_cannot_be_read_has_that_problem_alone() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display();
    for name in ["one/web", "one/db", "two/db"] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name).join("a.raw"), "x").unwrap();
    }
    std::os::unix::fs::symlink("web", folder.path().join("two/web")).unwrap();
    let text = format!("disks = ['a={root}/one/*/a.raw', 'b={root}/two/*/a.raw']\n");
    let settings = parse(&format!("schedule = '@daily'\n[[vm]]\nname = '*'\n{text}"));
    let vms = settings.entries[0].vms().unwrap();
    let found: Vec<_> = vms.iter().map(|vm| (vm.name.as_str(), vm.disks.len())).collect();
    assert_eq!(found, [("db", 2), ("web", 0)], "no backup of some of its disks");
    assert!(vms[0].problem.is_none() && vms[1].problem.as_ref().unwrap().contains("two/web"), "{vms:?}");
}

#[test]
fn what_cannot_be_meant_is_refused_in_words() {
    let daily = format!("{WEB}schedule = '@daily'\n");
    for (text, why) in [
        ("at-once = 0", "at-once is 0"),
        ("at_once = 1", "at_once"),
        ("shedule = '@daily'", "shedule"),
        ("vm = 3", "[[vm]]"),
        (WEB, "schedule"),
        (&format!("{WEB}schedule = '61 * * * *'\n"), "vm \"web\": "),
        (&format!("{daily}time-zone = 'Berlin'"), "no time zone"),
        (&format!("{daily}retry-pause = 'soon'"), "write 10m"),
        (&format!("{daily}retries = 1000"), "retries is 1000"),
        (&format!("{daily}{daily}"), "two [[vm]] of the name \"web\""),
        (&daily.replace("'web'", "'web-*'"), "needs a *"),
        (&daily.replace("'/vms/web.raw'", "'nbd://host/x'"), "NAME=PATH"),
        (&daily.replace("'/vms/web.raw'", "{ path = '/x', format = 'vhdy' }"), "no format of disks"),
        (&daily.replace("'/vms/web.raw'", ""), "has no disks"),
        ("rate = 'fast'", "is not a size"),
        ("rate-windows = ['08:00 1MiB']", "has no end"),
    ] {
        let refused = AgentSettings::parse(text).unwrap_err();
        assert!(refused.contains(why), "{text}: {refused}");
    }
    assert!(parse("").entries.is_empty(), "a file without VMs is fine");
}

#[test]
fn a_file_that_others_may_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    assert!(AgentSettings::load(&path).unwrap_err().to_string().contains("agent join"));
    std::fs::write(&path, "").unwrap();
    for (mode, fine) in [(0o600, true), (0o644, true), (0o664, false), (0o606, false)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let loaded = AgentSettings::load(&path);
        assert_eq!(loaded.is_ok(), fine, "{mode:o}");
        if let Err(error) = loaded {
            let text = error.to_string();
            assert!(text.contains(&format!("mode {mode:04o}")) && text.contains("owner "), "{text}");
        }
    }
}

#[test]
fn the_example_is_understood_with_and_without_its_comments() {
    assert!(parse(EXAMPLE).entries.is_empty());
    let lines = EXAMPLE.lines().map(|line| {
        let key = line
            .strip_prefix('#')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '['));
        key.unwrap_or(line)
    });
    let settings = parse(&lines.collect::<Vec<_>>().join("\n"));
    assert_eq!(settings.entries.len(), 2);
    for key in [
        "at-once",
        "rate",
        "rate-windows",
        "retries",
        "retry-pause",
        "time-limit",
        "before",
        "after",
        "namespace",
    ] {
        assert!(EXAMPLE.contains(&format!("\n#{key} = ")), "{key} is not explained");
    }
}
