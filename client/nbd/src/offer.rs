//! Negotiation with a client: from the first byte to the first request.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::sync::Arc;

use crate::exports::{Disk, Exports};
use crate::stream::{Socket, Timed};
use crate::wire::{
    self, ALLOCATION, CAN_MULTI_CONN, FIXED_NEWSTYLE, HAS_FLAGS, NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC,
    PAYLOAD_MAX, READ_ONLY, SERVER_MAGIC, TEXT_MAX, info, option, option_reply, read_u16, read_u32, read_u64,
};

/// Bytes of an option: a name, and as many queries of metadata contexts as any client has.
const OPTION_MAX: u32 = 16 << 10;
/// Options before the first request.
const OPTIONS_MAX: usize = 64;
/// Size of blocks that requests had better have.
const PREFERRED_BLOCK: u32 = 4096;
/// Id of the metadata context `base:allocation`.
pub(crate) const CONTEXT: u32 = 1;
/// Flags of every export: the bytes never change, so all connections see the same.
const FLAGS: u16 = HAS_FLAGS | READ_ONLY | CAN_MULTI_CONN;

/// Choices of a client.
pub(crate) struct Chosen {
    pub(crate) disk: Arc<dyn Disk>,
    /// Replies go out in chunks.
    pub(crate) structured: bool,
    /// The client may ask for allocation.
    pub(crate) allocation: bool,
}

/// A negotiation in progress.
struct Offer<'a> {
    stream: Timed,
    exports: &'a Exports,
    structured: bool,
    /// Name of the export for which the client chose `base:allocation`.
    allocation_of: Option<Vec<u8>>,
    no_zeroes: bool,
}

/// Negotiates with a client. `None`: it ended the negotiation itself.
pub(crate) fn negotiate(mut stream: Timed, exports: &Exports) -> io::Result<Option<(Socket, Chosen)>> {
    let ours = FIXED_NEWSTYLE | NO_ZEROES;
    stream.write_all(
        &[&SERVER_MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &ours.to_be_bytes()].concat(),
    )?;
    let theirs = read_u32(&mut stream)?;
    if theirs & !u32::from(ours) != 0 {
        return Err(wrong("flags that were not offered"));
    }
    let no_zeroes = theirs & u32::from(NO_ZEROES) != 0;
    let mut offer = Offer { stream, exports, structured: false, allocation_of: None, no_zeroes };
    for _ in 0..OPTIONS_MAX {
        match offer.option()? {
            Step::Next => {}
            Step::Ended => return Ok(None),
            Step::Chosen(name, disk) => {
                let allocation = offer.structured && offer.allocation_of.is_some_and(|of| of == name);
                let chosen = Chosen { disk, structured: offer.structured, allocation };
                return offer.stream.into_socket().map(|socket| Some((socket, chosen)));
            }
        }
    }
    Err(wrong("options without end"))
}

enum Step {
    Next,
    Ended,
    Chosen(Vec<u8>, Arc<dyn Disk>),
}

impl Offer<'_> {
    fn option(&mut self) -> io::Result<Step> {
        if read_u64(&mut self.stream)? != OPTION_MAGIC {
            return Err(wrong("an option without its magic"));
        }
        let (option, len) = (read_u32(&mut self.stream)?, read_u32(&mut self.stream)?);
        if len > OPTION_MAX {
            return Err(wrong("an option that is too long"));
        }
        let mut data = vec![0; len as usize];
        self.stream.read_exact(&mut data)?;
        match option {
            option::EXPORT_NAME => return self.by_name(data),
            option::ABORT => {
                self.reply(option, option_reply::ACK, &[])?;
                return Ok(Step::Ended);
            }
            option::LIST if data.is_empty() => self.list()?,
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                self.reply(option, option_reply::ACK, &[])?;
            }
            option::LIST | option::STRUCTURED_REPLY => self.refuse(option, "it takes no data")?,
            option::INFO | option::GO => return self.go(option, &data),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(option, &data)?,
            _ => self.reply(option, option_reply::UNSUPPORTED, &[])?,
        }
        Ok(Step::Next)
    }

    /// The way of old clients: there is no answer for a name that there is not.
    fn by_name(&mut self, name: Vec<u8>) -> io::Result<Step> {
        let disk = self.exports.find(&name).ok_or_else(|| wrong("an export that there is not"))?;
        let mut answer = [&disk.size_bytes().to_be_bytes()[..], &FLAGS.to_be_bytes()].concat();
        if !self.no_zeroes {
            answer.resize(answer.len() + 124, 0);
        }
        self.stream.write_all(&answer)?;
        Ok(Step::Chosen(name, disk))
    }

    fn list(&mut self) -> io::Result<()> {
        let exports = self.exports;
        for name in exports.names() {
            self.reply(option::LIST, option_reply::SERVER, &wire::encode_text(name)?)?;
        }
        self.reply(option::LIST, option_reply::ACK, &[])
    }

    fn go(&mut self, option: u32, data: &[u8]) -> io::Result<Step> {
        let rest = &mut &*data;
        let Some(name) = text(rest) else {
            return self.refuse(option, "the name does not fit its length").map(|()| Step::Next);
        };
        // What it wants to know is sent anyway.
        if read_u16(rest).ok().map(usize::from).is_none_or(|count| rest.len() != 2 * count) {
            return self.refuse(option, "the wishes do not fit their number").map(|()| Step::Next);
        }
        let Some(disk) = self.exports.find(name) else {
            let names: Vec<&str> = self.exports.names().collect();
            let text = format!("the exports are: {}", names.join(", "));
            let text: String = text.chars().take(TEXT_MAX / 4).collect();
            return self.reply(option, option_reply::UNKNOWN, text.as_bytes()).map(|()| Step::Next);
        };
        let blocks = [1, PREFERRED_BLOCK, PAYLOAD_MAX].map(u32::to_be_bytes).concat();
        let export = [&disk.size_bytes().to_be_bytes()[..], &FLAGS.to_be_bytes()].concat();
        for (kind, told) in [(info::EXPORT, export), (info::BLOCK_SIZE, blocks)] {
            self.reply(option, option_reply::INFO, &[&kind.to_be_bytes(), &*told].concat())?;
        }
        self.reply(option, option_reply::ACK, &[])?;
        Ok(if option == option::GO { Step::Chosen(name.to_vec(), disk) } else { Step::Next })
    }

    /// Lists or chooses metadata contexts.
    fn contexts(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        let rest = &mut &*data;
        let is_choice = option == option::SET_META_CONTEXT;
        let Some((name, queries)) = text(rest).zip(read_u32(rest).ok()) else {
            return self.refuse(option, "the name does not fit its length");
        };
        let mut is_wanted = queries == 0 && !is_choice;
        for _ in 0..queries {
            let Some(query) = text(rest) else {
                return self.refuse(option, "a query does not fit its length");
            };
            is_wanted |= query == ALLOCATION.as_bytes() || (!is_choice && query == b"base:");
        }
        if is_choice {
            self.allocation_of = None;
            if !self.structured {
                return self.refuse(option, "choose structured replies first");
            }
        }
        if !rest.is_empty() {
            return self.refuse(option, "more data than its queries");
        }
        if self.exports.find(name).is_none() {
            return self.reply(option, option_reply::UNKNOWN, &[]);
        }
        if is_wanted {
            let id = if is_choice { CONTEXT } else { 0 };
            let context = [&id.to_be_bytes(), ALLOCATION.as_bytes()].concat();
            self.reply(option, option_reply::META_CONTEXT, &context)?;
            self.allocation_of = is_choice.then(|| name.to_vec());
        }
        self.reply(option, option_reply::ACK, &[])
    }

    fn refuse(&mut self, option: u32, why: &str) -> io::Result<()> {
        self.reply(option, option_reply::INVALID, why.as_bytes())
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        let len = u32::try_from(data.len()).map_err(io::Error::other)?;
        let head = [option, kind, len].map(u32::to_be_bytes).concat();
        self.stream.write_all(&[&OPTION_REPLY_MAGIC.to_be_bytes(), &*head, data].concat())
    }
}

/// A text after its length; `None` when there is no such text.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = read_u32(rest).ok().and_then(|len| usize::try_from(len).ok()).filter(|len| *len <= TEXT_MAX)?;
    let (text, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(text)
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
