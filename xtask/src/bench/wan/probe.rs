//! One plain TCP connection, to compare with: `cargo xtask bench wan-probe`, started at both ends of the line.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use crate::splitmix::SplitMix64;

#[derive(Debug, Args)]
pub(crate) struct ProbeOptions {
    /// Receive on this address
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Send to this address
    #[arg(long, value_name = "ADDRESS")]
    connect: Option<SocketAddr>,
    /// Seconds to send for
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
}

pub(crate) fn run(options: &ProbeOptions) -> Result<()> {
    match (options.listen, options.connect) {
        (Some(address), None) => receive(address),
        (None, Some(address)) => send(address, Duration::from_secs_f64(options.seconds)),
        _ => bail!("give either --listen or --connect"),
    }
}

/// Prints its address, then the bytes of the first connection and the seconds it took.
fn receive(address: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    let begun = Instant::now();
    let mut buffer = vec![0; 256 << 10];
    let mut total = 0;
    while let read @ 1.. = stream.read(&mut buffer)? {
        total += read;
    }
    println!("{total} {}", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Prints how long it took to connect, in seconds: one round trip.
fn send(address: SocketAddr, duration: Duration) -> Result<()> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    println!("{}", begun.elapsed().as_secs_f64());
    let mut random = SplitMix64(1);
    let block: Vec<u8> = (0..8192).flat_map(|_| random.next().to_le_bytes()).collect();
    let begun = Instant::now();
    while begun.elapsed() < duration {
        stream.write_all(&block)?;
    }
    Ok(())
}
