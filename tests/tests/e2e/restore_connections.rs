//! One disk restored over several connections.

use std::path::Path;

use holdfast_tests::agent::Agent;
use holdfast_tests::proxy::Proxy;
use holdfast_tests::repository::{Class, containers_of};
use holdfast_tests::{Disk, Server};
use tempfile::{TempDir, tempdir};

/// Connections made at first: one for data, one for everything else.
const FIRST: u64 = 2;

/// A server with one backup of a disk whose last extent is short.
fn backed_up(args: &[&str]) -> (TempDir, Server, Disk) {
    let folder = tempdir().unwrap();
    let server = args.iter().fold(Server::options(), |options, arg| options.arg(*arg));
    let server = server.start(&folder.path().join("repository"));
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, (70 << 20) + 512);
    server.agent().back_up("vm", &[disk.arg()]);
    (folder, server, disk)
}

fn args<'a>(to: &'a str, connections: &'a str) -> Vec<&'a str> {
    vec!["restore", "latest", "--vm", "vm", "--no-sync", "--connections", connections, "--to", to]
}

#[test]
fn four_connections_bring_the_same_disk() {
    let (folder, server, disk) = backed_up(&[]);
    let to = folder.path().join("restored.raw");
    let proxy = Proxy::rationing(server.grpc(), 4 << 20, FIRST + 3);
    let agent = server.agent().through(proxy.address());
    agent.run(&args(to.to_str().unwrap(), "4")).ok();
    disk.assert_same(&to);
    assert_eq!(proxy.connections(), FIRST + 3);
    agent.run(&["verify", "latest", "--vm", "vm", "--connections", "4"]).ok();
    // To a pipe, in order.
    let ran = agent.run(&args("-", "4")).ok();
    assert!(ran.stdout == disk.bytes());
    agent.run(&args("-", "33")).fails(2, &["--connections", "1 to 32"]);
}

#[test]
fn a_connection_that_is_cut_costs_no_more_than_time() {
    for connections in ["1", "4"] {
        let (folder, server, disk) = backed_up(&[]);
        let to = folder.path().join("restored.raw");
        let proxy = Proxy::cutting_one_down(server.grpc(), 9 << 20);
        let agent = server.agent().through(proxy.address());
        agent.run(&args(to.to_str().unwrap(), connections)).ok();
        assert!(proxy.has_cut_one());
        disk.assert_same(&to);
    }
}

#[test]
fn a_server_without_room_for_more_streams_is_no_obstacle() {
    for limit in ["1", "2"] {
        let (folder, server, disk) = backed_up(&["--max-restores", limit]);
        let to = folder.path().join("restored.raw");
        let proxy = Proxy::rationing(server.grpc(), 4 << 20, FIRST + 7);
        let agent = server.agent().through(proxy.address());
        agent.run(&args(to.to_str().unwrap(), "8")).ok();
        disk.assert_same(&to);
    }
}

/// Restores everything readable; returns the disk and the map of the rest.
fn salvage(agent: &Agent, folder: &Path, connections: &str) -> (Vec<u8>, String) {
    let (to, map) = (folder.join(connections), folder.join(format!("{connections}.map")));
    let mut args = args(to.to_str().unwrap(), connections);
    args.extend(["--keep-going", "--bad-map", map.to_str().unwrap()]);
    agent.run(&args).fails(5, &["vm"]);
    let map = std::fs::read_to_string(map).unwrap();
    let ranges = map.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    (std::fs::read(to).unwrap(), ranges)
}

#[test]
fn what_is_damaged_is_the_same_over_any_number_of_connections() {
    let (folder, server, disk) = backed_up(&[]);
    for container in containers_of(server.data_dir(), Class::Data) {
        container.flip_bit(container.len / 3);
        container.flip_bit(container.len / 2);
    }
    let agent = server.agent();
    let one = salvage(&agent, folder.path(), "1");
    assert!(one.0 != disk.bytes());
    let four = salvage(&agent, folder.path(), "4");
    assert!(one.0 == four.0, "the disk");
    assert_eq!(one.1, four.1, "the map");
    agent.run(&args(folder.path().join("none").to_str().unwrap(), "4")).fails(5, &["damaged"]);
    assert!(!folder.path().join("none").exists());
}
