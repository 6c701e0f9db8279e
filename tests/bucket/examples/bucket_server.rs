//! The bucket of the tests as a program: for demonstrations, measurements and tests that are not written in Rust. Its
//! contents are in memory, and lost when the program ends.
//!
//! `bucket_server [--latency-ms N] [--rate BYTES_A_SECOND] [--lines]` prints its address and credentials as one JSON
//! object, and `ready`. With `--lines` it then reads commands, a line each, answers each with a line, and ends at
//! the end of input:
//!
//! | command | does |
//! |---|---|
//! | `counts` | prints the requests so far, by kind and first folder of the key, and totals of the objects |
//! | `keys` | prints the keys of all objects |
//! | `empty` | removes all objects |
//! | `latency N` | delays every request by N ms |
//! | `rate N` | limits transfers to N bytes a second, each way; 0: unlimited |
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a program for tests and demonstrations"
)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};
use std::time::Duration;

use holdfast_bucket::{ACCESS_KEY, BUCKET, Op, SECRET_KEY, TestBucket};

fn main() {
    let bucket = TestBucket::start();
    let mut takes_lines = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || {
            args.next().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{arg} needs a number"))
        };
        match arg.as_str() {
            "--latency-ms" => bucket.set_latency(Duration::from_millis(number())),
            "--rate" => bucket.set_rate(number()),
            "--lines" => takes_lines = true,
            _ => panic!("unknown argument {arg:?}"),
        }
    }
    println!(
        "{{\"endpoint\":\"{}\",\"bucket\":\"{BUCKET}\",\"access_key\":\"{ACCESS_KEY}\",\"secret_key\":\"{SECRET_KEY}\"}}",
        bucket.endpoint()
    );
    println!("ready");
    if !takes_lines {
        loop {
            std::thread::park();
        }
    }
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (command, rest) = line.split_once(' ').unwrap_or((&line, "0"));
        match command {
            "counts" => println!("{}", counts(&bucket)),
            "latency" => {
                bucket.set_latency(Duration::from_millis(rest.parse().unwrap()));
                println!("{{}}");
            }
            "keys" => {
                let keys: Vec<_> = bucket.keys().iter().map(|key| format!("\"{key}\"")).collect();
                println!("[{}]", keys.join(","));
            }
            "empty" => {
                bucket.keys().iter().for_each(|key| bucket.delete(key));
                println!("{{}}");
            }
            "rate" => {
                bucket.set_rate(rest.parse().unwrap());
                println!("{{}}");
            }
            _ => println!("{{\"error\":\"unknown command\"}}"),
        }
        // The test that sent the command waits for it.
        std::io::stdout().flush().unwrap();
    }
}

fn counts(bucket: &TestBucket) -> String {
    let mut fields = Vec::new();
    for (name, op) in [
        ("put", Op::Put),
        ("get", Op::Get),
        ("head", Op::Head),
        ("list", Op::List),
        ("delete", Op::Delete),
        ("parts", Op::Parts),
    ] {
        let by_folder: Vec<_> =
            bucket.by_folder(op).iter().map(|(folder, count)| format!("\"{folder}\":{count}")).collect();
        fields.push(format!("\"{name}\":{{{}}}", by_folder.join(",")));
    }
    let mut objects = BTreeMap::<String, (u64, u64)>::new();
    for key in bucket.keys() {
        let bytes = bucket.object(&key).map_or(0, |object| object.bytes.len() as u64);
        let of_folder = objects.entry(holdfast_bucket::folder_of(&key).to_owned()).or_default();
        *of_folder = (of_folder.0 + 1, of_folder.1 + bytes);
    }
    let objects: Vec<_> = objects
        .iter()
        .map(|(folder, (count, bytes))| format!("\"{folder}\":{{\"count\":{count},\"bytes\":{bytes}}}"))
        .collect();
    fields.push(format!("\"objects\":{{{}}}", objects.join(",")));
    let traffic = bucket.take_traffic();
    fields.push(format!(
        "\"received_bytes\":{},\"sent_bytes\":{},\"gets_in_flight_max\":{}",
        traffic.received_bytes, traffic.sent_bytes, traffic.gets_in_flight_max
    ));
    format!("{{{}}}", fields.join(","))
}
