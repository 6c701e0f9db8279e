//! Network devices whose packets a program reads and writes: `/dev/net/tun`.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;

use anyhow::{Context, Result};

pub(super) const TUN: &str = "/dev/net/tun";

/// A layer 3 device: one packet each read, one each write. It disappears when the file is closed.
#[derive(Debug)]
pub(super) struct Tun {
    pub(super) name: String,
    pub(super) file: File,
}

impl Tun {
    /// Creates a device in the network namespace of this process, under a name that the kernel chooses.
    pub(super) fn create() -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(TUN);
        let file = file.with_context(|| format!("cannot open {TUN}"))?;
        // SAFETY: an all-zero ifreq is a valid value of that C structure of integers.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(c"holdfast%d".to_bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_TUN | libc::IFF_NO_PI)?;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which is live; the file stays open for the call.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } < 0 {
            return Err(io::Error::last_os_error()).context("cannot make a TUN device");
        }
        let name: Vec<u8> = request.ifr_name.iter().map(|byte| byte.cast_unsigned()).collect();
        let name = CStr::from_bytes_until_nul(&name).context("the kernel gave the device no name")?;
        Ok(Self { name: name.to_str()?.to_owned(), file })
    }
}
