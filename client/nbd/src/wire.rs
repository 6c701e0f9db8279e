//! Numbers and headers of the protocol, as both sides know them. All integers are big-endian.

use std::io::{self, BufRead, Read};

/// First word of the server: `NBDMAGIC`.
pub(crate) const SERVER_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second word of a newstyle server, and first word of each option: `IHAVEOPT`.
pub(crate) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Flags of the handshake, the same bits for server and client.
pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
pub(crate) const NO_ZEROES: u16 = 1 << 1;

/// Flags of an export.
pub(crate) const HAS_FLAGS: u16 = 1 << 0;
pub(crate) const READ_ONLY: u16 = 1 << 1;
pub(crate) const SEND_FLUSH: u16 = 1 << 2;
pub(crate) const SEND_FUA: u16 = 1 << 3;
pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;

pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Kinds of replies to an option. Errors have the highest bit.
pub(crate) mod option_reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERROR: u32 = 1 << 31;
    pub(crate) const UNSUPPORTED: u32 = ERROR | 1;
    pub(crate) const INVALID: u32 = ERROR | 3;
    pub(crate) const TLS_REQUIRED: u32 = ERROR | 5;
    pub(crate) const UNKNOWN: u32 = ERROR | 6;
}

pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// The metadata context that tells zeros from data.
pub(crate) const ALLOCATION: &str = "base:allocation";
/// The bit of [`ALLOCATION`] that promises zeros. The one for holes promises nothing about what is read there.
pub(crate) const STATE_ZERO: u32 = 1 << 1;
pub(crate) const STATE_HOLE: u32 = 1 << 0;

pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
    /// Flag of what writes: durable when it is answered.
    pub(crate) const FUA: u16 = 1 << 0;
    /// Flag of a block status: one extent is enough.
    pub(crate) const REQ_ONE: u16 = 1 << 3;
}

/// Kinds of chunks. Errors have the highest bit.
pub(crate) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = 1 << 15;
    /// An error of the whole request.
    pub(crate) const FAILED: u16 = ERROR | 1;
    /// Flag of the last chunk of a reply.
    pub(crate) const DONE: u16 = 1 << 0;
}

/// Numbers of errors, the same as those of Linux.
pub(crate) mod errno {
    pub(crate) const NOT_PERMITTED: u32 = 1;
    pub(crate) const INPUT_OUTPUT: u32 = 5;
    pub(crate) const INVALID: u32 = 22;
}

/// Most payload of one request: what every server must take.
pub(crate) const PAYLOAD_MAX: u32 = 32 << 20;
/// Longest text: a name or a message.
pub(crate) const TEXT_MAX: usize = 4096;
/// Most extents that one chunk may describe.
pub(crate) const DESCRIPTORS_MAX: u32 = 1 << 20;
/// Largest smallest block.
pub(crate) const MIN_BLOCK_MAX: u32 = 64 << 10;

/// A request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Request {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(28);
        bytes.extend(REQUEST_MAGIC.to_be_bytes());
        bytes.extend(self.flags.to_be_bytes());
        bytes.extend(self.command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(self.offset.to_be_bytes());
        bytes.extend(self.len.to_be_bytes());
        bytes
    }

    /// Reads the next request. `None`: the client ended the connection between two of them.
    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        if from.fill_buf()?.is_empty() {
            return Ok(None);
        }
        if read_u32(from)? != REQUEST_MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a request without its magic"));
        }
        let (flags, command) = (read_u16(from)?, read_u16(from)?);
        let (cookie, offset, len) = (read_u64(from)?, read_u64(from)?, read_u32(from)?);
        Ok(Some(Self { flags, command, cookie, offset, len }))
    }
}

/// An option of a client.
pub(crate) fn encode_option(option: u32, data: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(16 + data.len());
    bytes.extend(OPTION_MAGIC.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend(encode_len(data.len())?);
    bytes.extend(data);
    Ok(bytes)
}

/// A text after its length in 32 bits.
pub(crate) fn encode_text(text: &str) -> io::Result<Vec<u8>> {
    Ok([&encode_len(text.len())?, text.as_bytes()].concat())
}

fn encode_len(len: usize) -> io::Result<[u8; 4]> {
    u32::try_from(len).map(u32::to_be_bytes).map_err(io::Error::other)
}

pub(crate) fn read_array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn read_u16(from: &mut impl Read) -> io::Result<u16> {
    read_array(from).map(u16::from_be_bytes)
}

pub(crate) fn read_u32(from: &mut impl Read) -> io::Result<u32> {
    read_array(from).map(u32::from_be_bytes)
}

pub(crate) fn read_u64(from: &mut impl Read) -> io::Result<u64> {
    read_array(from).map(u64::from_be_bytes)
}
