//! Negotiation with a server: from the first byte to the first request.

use std::io::{Read as _, Write as _};

use crate::address::Address;
use crate::error::{NbdError, printable};
use crate::stream::{Stream, Timed};
use crate::tls;
use crate::wire::{
    self, ALLOCATION, FIXED_NEWSTYLE, HAS_FLAGS, MIN_BLOCK_MAX, NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC,
    PAYLOAD_MAX, SERVER_MAGIC, info, option, option_reply, read_array, read_u16, read_u32, read_u64,
};

/// Bytes that a reply to an option may have: a name and a description at most.
const REPLY_MAX: u32 = 16 << 10;
/// Replies that an option may have before its last.
const REPLIES_MAX: usize = 64;

/// Parameters negotiated in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) size_bytes: u64,
    pub(crate) flags: u16,
    /// Offsets and lengths of requests are multiples of it; so is the size.
    pub(crate) min_block: u32,
    /// Longest read of one request; at least `min_block`.
    pub(crate) payload_max: u32,
    /// Replies come in chunks.
    pub(crate) structured: bool,
    /// Id of the metadata context `base:allocation`, on this connection.
    pub(crate) allocation: Option<u32>,
}

/// Negotiates the export of `address`.
pub(crate) fn negotiate(plain: Timed, address: &Address) -> Result<(Stream, Agreed), NbdError> {
    let mut stream = Stream::Plain(plain);
    let flags = greet(&mut stream)?;
    if let Some(settings) = &address.tls {
        let reply = ask(&mut stream, option::STARTTLS, &[])?;
        reply.accepted("to use TLS")?;
        let Stream::Plain(plain) = stream else { return Err(NbdError::violation("TLS within TLS")) };
        stream = tls::start(plain, settings)?;
    }
    let reply = ask(&mut stream, option::STRUCTURED_REPLY, &[])?;
    reply.tls_not_required()?;
    let structured = reply.kind == option_reply::ACK;
    let allocation = if structured { choose_allocation(&mut stream, &address.export)? } else { None };
    let no_zeroes = flags & NO_ZEROES != 0;
    let terms = match go(&mut stream, &address.export)? {
        Some(terms) => terms,
        None => by_name(&mut stream, &address.export, no_zeroes)?,
    };
    let agreed = Agreed { structured, allocation, ..terms };
    check(&agreed)?;
    Ok((stream, agreed))
}

/// Greets the server, and returns its flags.
fn greet(stream: &mut Stream) -> Result<u16, NbdError> {
    if read_u64(stream)? != SERVER_MAGIC || read_u64(stream)? != OPTION_MAGIC {
        return Err(NbdError::violation("it does not greet as a server of the newstyle protocol"));
    }
    let flags = read_u16(stream)?;
    if flags & FIXED_NEWSTYLE == 0 {
        return Err(NbdError::violation("it does not know the fixed newstyle protocol"));
    }
    let ours = u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES));
    stream.write_all(&ours.to_be_bytes())?;
    Ok(flags)
}

/// One reply to an option.
struct Reply {
    kind: u32,
    data: Vec<u8>,
}

impl Reply {
    fn tls_not_required(&self) -> Result<(), NbdError> {
        if self.kind == option_reply::TLS_REQUIRED {
            let why = "it requires TLS; write nbds:// or nbds+unix://".to_owned();
            return Err(NbdError::Refused { what: "a connection", why });
        }
        Ok(())
    }

    /// An error unless the server agreed to `what`.
    fn accepted(&self, what: &'static str) -> Result<(), NbdError> {
        self.tls_not_required()?;
        let text = printable(&self.data);
        match self.kind {
            option_reply::ACK => Ok(()),
            option_reply::UNKNOWN => {
                Err(NbdError::Refused { what, why: format!("there is no such export. {text}") })
            }
            kind if kind & option_reply::ERROR != 0 => {
                let number = kind ^ option_reply::ERROR;
                Err(NbdError::Refused { what, why: format!("error {number} of the negotiation. {text}") })
            }
            kind => Err(NbdError::violation(format!("reply {kind} to the wish {what}"))),
        }
    }
}

/// Sends an option, and reads the first reply.
fn ask(stream: &mut Stream, option: u32, data: &[u8]) -> Result<Reply, NbdError> {
    stream.write_all(&wire::encode_option(option, data)?)?;
    stream.flush()?;
    reply(stream, option)
}

fn reply(stream: &mut Stream, option: u32) -> Result<Reply, NbdError> {
    if read_u64(stream)? != OPTION_REPLY_MAGIC || read_u32(stream)? != option {
        return Err(NbdError::violation(format!("what follows option {option} is no reply to it")));
    }
    let kind = read_u32(stream)?;
    let len = read_u32(stream)?;
    if len > REPLY_MAX {
        return Err(NbdError::violation(format!("a reply of {len} bytes to option {option}")));
    }
    let mut data = vec![0; len as usize];
    stream.read_exact(&mut data)?;
    Ok(Reply { kind, data })
}

/// Asks for `base:allocation`. `None` where the server does not have it.
fn choose_allocation(stream: &mut Stream, export: &str) -> Result<Option<u32>, NbdError> {
    let query =
        [wire::encode_text(export)?, 1u32.to_be_bytes().to_vec(), wire::encode_text(ALLOCATION)?].concat();
    let mut answer = ask(stream, option::SET_META_CONTEXT, &query)?;
    let mut chosen = None;
    for _ in 0..REPLIES_MAX {
        match answer.kind {
            option_reply::ACK => return Ok(chosen),
            kind if kind & option_reply::ERROR != 0 => return Ok(None),
            option_reply::META_CONTEXT => {
                let data = &mut answer.data.as_slice();
                let id = read_u32(data)?;
                if *data != ALLOCATION.as_bytes() || chosen.replace(id).is_some() {
                    return Err(NbdError::violation("a metadata context that was not asked for"));
                }
            }
            kind => return Err(NbdError::violation(format!("reply {kind} to a choice of contexts"))),
        }
        answer = reply(stream, option::SET_META_CONTEXT)?;
    }
    Err(NbdError::violation("metadata contexts without end"))
}

/// Asks for the export, promising to respect its block sizes. `None` where the server does not know this option.
fn go(stream: &mut Stream, export: &str) -> Result<Option<Agreed>, NbdError> {
    let wishes = [1u16.to_be_bytes(), info::BLOCK_SIZE.to_be_bytes()].concat();
    let mut answer = ask(stream, option::GO, &[wire::encode_text(export)?, wishes].concat())?;
    let (mut size, mut blocks) = (None, None);
    for _ in 0..REPLIES_MAX {
        match answer.kind {
            option_reply::UNSUPPORTED => return Ok(None),
            option_reply::INFO => {
                let data = &mut answer.data.as_slice();
                match read_u16(data)? {
                    info::EXPORT => size = Some((read_u64(data)?, read_u16(data)?)),
                    info::BLOCK_SIZE => {
                        let (min_block, _preferred, most) =
                            (read_u32(data)?, read_u32(data)?, read_u32(data)?);
                        blocks = Some((min_block, most));
                    }
                    _ => *data = &[],
                }
                if !data.is_empty() {
                    return Err(NbdError::violation("an information that is too long"));
                }
            }
            _ => {
                answer.accepted("the export")?;
                let (size_bytes, flags) =
                    size.ok_or_else(|| NbdError::violation("it does not say how large the export is"))?;
                let (min_block, most) = blocks.unwrap_or((1, PAYLOAD_MAX));
                return Ok(Some(Agreed {
                    min_block,
                    payload_max: most.min(PAYLOAD_MAX),
                    ..plain(size_bytes, flags)
                }));
            }
        }
        answer = reply(stream, option::GO)?;
    }
    Err(NbdError::violation("information without end"))
}

/// An export with the block sizes that every server takes.
const fn plain(size_bytes: u64, flags: u16) -> Agreed {
    Agreed { size_bytes, flags, min_block: 1, payload_max: PAYLOAD_MAX, structured: false, allocation: None }
}

/// Asks for the export in the way of old servers, which close the connection when they have none of this name.
fn by_name(stream: &mut Stream, export: &str, no_zeroes: bool) -> Result<Agreed, NbdError> {
    stream.write_all(&wire::encode_option(option::EXPORT_NAME, export.as_bytes())?)?;
    stream.flush()?;
    let agreed = plain(read_u64(stream)?, read_u16(stream)?);
    if !no_zeroes {
        read_array::<124>(stream)?;
    }
    Ok(agreed)
}

/// Checks the parameters that all arithmetic on offsets relies on.
fn check(agreed: &Agreed) -> Result<(), NbdError> {
    let Agreed { size_bytes, flags, min_block, payload_max, .. } = *agreed;
    let wrong = |what: String| Err(NbdError::Violation(what));
    if i64::try_from(size_bytes).is_err() {
        return wrong(format!("an export of {size_bytes} bytes"));
    }
    if flags & HAS_FLAGS == 0 {
        return wrong(format!("flags {flags:#x} of an export"));
    }
    if !min_block.is_power_of_two() || min_block > MIN_BLOCK_MAX || payload_max < min_block {
        return wrong(format!("blocks of {min_block} bytes and payloads of {payload_max}"));
    }
    if !size_bytes.is_multiple_of(u64::from(min_block)) {
        return wrong(format!(
            "an export of {size_bytes} bytes, of which only blocks of {min_block} can be read"
        ));
    }
    Ok(())
}
