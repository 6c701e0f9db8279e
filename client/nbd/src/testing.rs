//! A server in the test's own process, which keeps to the protocol, or lies at a chosen byte.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::address::Address;
use crate::connection::Connection;
use crate::error::NbdError;
use crate::wire::{
    ALLOCATION, CAN_MULTI_CONN, CHUNK_MAGIC, FIXED_NEWSTYLE, HAS_FLAGS, NO_ZEROES, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, REQUEST_MAGIC, SERVER_MAGIC, SIMPLE_REPLY_MAGIC, STATE_ZERO, chunk, command, info,
    option, option_reply, read_u16, read_u32, read_u64,
};

/// Id that the model gives its context.
const CONTEXT: u32 = 0xC0FFEE;

/// A lie: a byte that is sent is another one. Only bytes that are no data of the disk count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lie {
    pub(crate) at: usize,
    pub(crate) xor: u8,
    /// Counts from the first request on.
    pub(crate) after_negotiation: bool,
}

/// A disk, and how it is served.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) disk: Vec<u8>,
    /// Flags of the export besides those that every model has.
    pub(crate) flags: u16,
    pub(crate) min_block: u32,
    pub(crate) structured: bool,
    pub(crate) allocation: bool,
    /// Knows GO.
    pub(crate) knows_go: bool,
    /// Decides where replies are cut, and in which order the parts are sent.
    pub(crate) seed: u64,
    pub(crate) lie: Option<Lie>,
    /// Answers each request with an error.
    pub(crate) fails: bool,
    /// Answers the first request with these bytes and no more.
    pub(crate) script: Option<Vec<u8>>,
    /// Requires TLS.
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

/// Transport of a session.
trait Socket: Read + Write + Send {}

impl<T: Read + Write + Send> Socket for T {}

impl Model {
    pub(crate) fn of(disk: Vec<u8>) -> Self {
        let (structured, allocation, knows_go) = (true, true, true);
        let (flags, min_block, seed, lie, fails, script, tls) = (0, 1, 1, None, false, None, None);
        Self { disk, flags, min_block, structured, allocation, knows_go, seed, lie, fails, script, tls }
    }

    /// A connection to it, whatever socket the address names.
    pub(crate) fn connect(&self, address: &Address, timeout: Duration) -> Result<Connection, NbdError> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let model = self.clone();
        // It ends with the connection.
        std::thread::spawn(move || drop(Session::new(model, theirs).serve()));
        Connection::over(ours.into(), address, timeout)
    }
}

/// The address of a model that has no TLS.
pub(crate) fn plain() -> Address {
    Address::of_socket("/model".as_ref())
}

/// Only a test that fails waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

struct Session {
    model: Model,
    socket: Box<dyn Socket>,
    plain: UnixStream,
    secure: bool,
    /// Bytes sent that a lie counts.
    sent: usize,
    requests: u64,
}

impl Session {
    fn new(model: Model, plain: UnixStream) -> Self {
        let socket = Box::new(plain.try_clone().unwrap());
        Self { model, socket, plain, secure: false, sent: 0, requests: 0 }
    }

    fn serve(&mut self) -> io::Result<()> {
        self.send(&[SERVER_MAGIC.to_be_bytes(), OPTION_MAGIC.to_be_bytes()].concat())?;
        self.send(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes())?;
        read_u32(&mut self.socket)?;
        while !self.negotiate()? {}
        loop {
            self.answer()?;
        }
    }

    /// Sends what a lie may change.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut bytes = bytes.to_vec();
        let begun = self.requests > 0;
        if let Some(lie) = self.model.lie.filter(|lie| begun || !lie.after_negotiation) {
            if let Some(byte) = lie.at.checked_sub(self.sent).and_then(|at| bytes.get_mut(at)) {
                *byte ^= lie.xor;
            }
            self.sent += bytes.len();
        }
        self.socket.write_all(&bytes)
    }

    /// Answers an option; true when it was the last.
    fn negotiate(&mut self) -> io::Result<bool> {
        assert_eq!(read_u64(&mut self.socket)?, OPTION_MAGIC);
        let option = read_u32(&mut self.socket)?;
        let mut data = vec![0; read_u32(&mut self.socket)? as usize];
        self.socket.read_exact(&mut data)?;
        let size = (self.model.disk.len() as u64).to_be_bytes();
        let flags = (HAS_FLAGS | CAN_MULTI_CONN | self.model.flags).to_be_bytes();
        match option {
            option::STARTTLS if let Some(config) = self.model.tls.clone() => {
                self.reply(option, option_reply::ACK, &[])?;
                let tls = ServerConnection::new(config).map_err(io::Error::other)?;
                self.socket = Box::new(StreamOwned::new(tls, self.plain.try_clone()?));
                self.secure = true;
            }
            _ if self.model.tls.is_some() && !self.secure => {
                self.reply(option, option_reply::TLS_REQUIRED, &[])?;
            }
            option::STRUCTURED_REPLY if self.model.structured => {
                self.reply(option, option_reply::ACK, &[])?;
            }
            option::SET_META_CONTEXT => {
                assert!(data.ends_with(ALLOCATION.as_bytes()));
                if self.model.allocation {
                    let context = [&CONTEXT.to_be_bytes(), ALLOCATION.as_bytes()].concat();
                    self.reply(option, option_reply::META_CONTEXT, &context)?;
                }
                self.reply(option, option_reply::ACK, &[])?;
            }
            option::GO if self.model.knows_go => {
                let blocks = [self.model.min_block, 65536, 1 << 20].map(u32::to_be_bytes).concat();
                self.reply(
                    option,
                    option_reply::INFO,
                    &[&info::BLOCK_SIZE.to_be_bytes(), &*blocks].concat(),
                )?;
                self.reply(option, option_reply::INFO, &[0, 99, 1, 2, 3])?;
                let export = [&info::EXPORT.to_be_bytes()[..], &size, &flags].concat();
                self.reply(option, option_reply::INFO, &export)?;
                self.reply(option, option_reply::ACK, &[])?;
                return Ok(true);
            }
            option::EXPORT_NAME => {
                self.send(&[&size[..], &flags].concat())?;
                return Ok(true);
            }
            _ => self.reply(option, option_reply::UNSUPPORTED, b"what?")?,
        }
        Ok(false)
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        let head = [option, kind, u32::try_from(data.len()).unwrap()].map(u32::to_be_bytes).concat();
        self.send(&[&OPTION_REPLY_MAGIC.to_be_bytes(), &*head, data].concat())
    }

    fn answer(&mut self) -> io::Result<()> {
        assert_eq!(read_u32(&mut self.socket)?, REQUEST_MAGIC);
        let (flags, command) = (read_u16(&mut self.socket)?, read_u16(&mut self.socket)?);
        let cookie = read_u64(&mut self.socket)?;
        let offset = usize::try_from(read_u64(&mut self.socket)?).unwrap();
        let len = read_u32(&mut self.socket)? as usize;
        self.requests += 1;
        if let Some(script) = &self.model.script {
            // The whole request first: a client that is still writing would find the connection gone, not the answer.
            let payload = if command == command::WRITE { len } else { 0 };
            self.socket.read_exact(&mut vec![0; payload])?;
            self.socket.write_all(script)?;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let block = self.model.min_block as usize;
        assert!(offset.is_multiple_of(block) && len.is_multiple_of(block), "{offset} + {len} in {block}");
        match command {
            command::READ if self.model.structured => self.answer_read(cookie, offset, len),
            command::READ => {
                let error = u32::from(self.model.fails) * 5;
                let head = [SIMPLE_REPLY_MAGIC, error].map(u32::to_be_bytes).concat();
                self.send(&[&head[..], &cookie.to_be_bytes()].concat())?;
                let data = self.model.disk[offset..offset + len].to_vec();
                if error == 0 { self.socket.write_all(&data) } else { Ok(()) }
            }
            command::BLOCK_STATUS => self.answer_status(cookie, offset, len, flags & command::REQ_ONE != 0),
            command::WRITE | command::WRITE_ZEROES | command::FLUSH => {
                let mut bytes = vec![0; len];
                if command == command::WRITE {
                    self.socket.read_exact(&mut bytes)?;
                }
                if !self.model.fails {
                    self.model.disk[offset..offset + len].copy_from_slice(&bytes);
                }
                self.answer_write(cookie)
            }
            _ => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    fn chunk(&mut self, cookie: u64, flags: u16, kind: u16, head: &[u8], data: &[u8]) -> io::Result<()> {
        let len = u32::try_from(head.len() + data.len()).unwrap().to_be_bytes();
        let kinds = [flags, kind].map(u16::to_be_bytes).concat();
        self.send(&[&CHUNK_MAGIC.to_be_bytes(), &*kinds, &cookie.to_be_bytes(), &len, head].concat())?;
        self.socket.write_all(data)
    }

    fn error(&mut self, cookie: u64) -> io::Result<()> {
        let text = b"bad \x1b[1mmedium";
        let head = [&5u32.to_be_bytes()[..], &[0, u8::try_from(text.len()).unwrap()], text].concat();
        self.chunk(cookie, 0, chunk::ERROR | 1, &head, &[])?;
        self.chunk(cookie, chunk::DONE, chunk::NONE, &[], &[])
    }

    /// Answers what has no data: in one of the ways that the protocol has for it.
    fn answer_write(&mut self, cookie: u64) -> io::Result<()> {
        if !self.model.structured || !self.model.fails && cookie.is_multiple_of(3) {
            let head = [SIMPLE_REPLY_MAGIC, u32::from(self.model.fails) * 28].map(u32::to_be_bytes).concat();
            self.send(&[&head[..], &cookie.to_be_bytes()].concat())
        } else if self.model.fails {
            self.error(cookie)
        } else {
            self.chunk(cookie, chunk::DONE, chunk::NONE, &[], &[])
        }
    }

    /// Answers a read in parts, in any order, zeros as holes.
    fn answer_read(&mut self, cookie: u64, offset: usize, len: usize) -> io::Result<()> {
        let mut parts = Vec::new();
        let mut at = offset;
        while at < offset + len {
            let end = offset + len;
            let part = (1 + usize::try_from(self.random()).unwrap() % len.div_ceil(3).max(2)).min(end - at);
            parts.insert(usize::try_from(self.random()).unwrap() % (parts.len() + 1), (at, part));
            at += part;
        }
        if self.model.fails {
            parts.truncate(1);
        }
        let count = parts.len();
        for (number, (at, len)) in parts.into_iter().enumerate() {
            let data = self.model.disk[at..at + len].to_vec();
            let last = number + 1 == count && !self.model.fails && cookie.is_multiple_of(2);
            let flags = u16::from(last) * chunk::DONE;
            let at = (at as u64).to_be_bytes();
            if data.iter().all(|byte| *byte == 0) {
                let hole = [&at[..], &u32::try_from(len).unwrap().to_be_bytes()].concat();
                self.chunk(cookie, flags, chunk::OFFSET_HOLE, &hole, &[])?;
            } else {
                self.chunk(cookie, flags, chunk::OFFSET_DATA, &at, &data)?;
            }
        }
        if self.model.fails {
            self.error(cookie)
        } else if cookie.is_multiple_of(2) {
            Ok(())
        } else {
            self.chunk(cookie, chunk::DONE, chunk::NONE, &[], &[])
        }
    }

    /// Blocks one by one; sometimes fewer than asked for, and the last sometimes longer.
    fn answer_status(&mut self, cookie: u64, offset: usize, len: usize, one: bool) -> io::Result<()> {
        if self.model.fails {
            return self.error(cookie);
        }
        let step = (self.model.min_block as usize).max(512);
        let mut body = CONTEXT.to_be_bytes().to_vec();
        let mut at = offset;
        while at < offset + len {
            let longest = if one { offset + len } else { self.model.disk.len() };
            let mut end = (at + step).min(longest);
            let zero = |part: &[u8]| part.iter().all(|byte| *byte == 0);
            let is_zero = zero(&self.model.disk[at..end]);
            while end < longest
                && !self.random().is_multiple_of(8)
                && zero(&self.model.disk[at..(end + step).min(longest)]) == is_zero
                && is_zero
            {
                end = (end + step).min(longest);
            }
            body.extend(
                [u32::try_from(end - at).unwrap(), (u32::from(is_zero) * STATE_ZERO) | 1]
                    .map(u32::to_be_bytes)
                    .concat(),
            );
            at = end;
            if one || self.random().is_multiple_of(16) {
                break;
            }
        }
        self.chunk(cookie, chunk::DONE, chunk::BLOCK_STATUS, &body, &[])
    }

    /// The next of a sequence that the seed decides (splitmix64).
    fn random(&mut self) -> u64 {
        self.model.seed = self.model.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.model.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The disk of a guest: data of bytes with the highest bit, which are no lengths, and zeros, by the bits of `map`.
pub(crate) fn disk(len: usize, map: u64) -> Vec<u8> {
    let byte = |at: usize| {
        let data = map >> (at / 700 % 64) & 1 == 1;
        if data { 0x80 | u8::try_from(at * 31 % 127).unwrap_or(0) } else { 0 }
    };
    (0..len).map(byte).collect()
}
