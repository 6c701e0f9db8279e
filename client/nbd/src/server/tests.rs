use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;

use parking_lot::Condvar;
use proptest::prelude::*;

use super::*;
use crate::address::Address;
use crate::connection::Extent;
use crate::error::NbdError;
use crate::export::Export;
use crate::exports::Disk;
use crate::listen::Place;
use crate::testing::disk;
use crate::wire::{
    NO_ZEROES, OPTION_MAGIC, Request, command, encode_option, encode_text, option, option_reply, read_u16,
    read_u32, read_u64,
};

/// A disk in memory. Its last byte cannot be read where it `fails`, and first waits for the gate to be opened where it has one.
#[derive(Default)]
struct Memory {
    bytes: Vec<u8>,
    fails: bool,
    waits: Option<Arc<Gate>>,
    at_hand: bool,
}

#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }
}

impl Disk for Memory {
    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        let end = at + buffer.len();
        if end == self.bytes.len() {
            if let Some(gate) = &self.waits {
                gate.opened.wait_while(&mut gate.open.lock(), |open| !*open);
            }
            if self.fails {
                return Err(io::Error::other("the medium is \x1b[1mbad"));
            }
        }
        buffer.copy_from_slice(&self.bytes[at..end]);
        Ok(())
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Vec<Extent>> {
        if self.fails {
            return Err(io::Error::other("nothing is known"));
        }
        // By blocks, some beyond what was asked for, and sometimes not up to its end.
        let blocks = (range.start..self.size_bytes()).step_by(700).take(40);
        let extent = |at: u64| {
            let end = (at + 700).min(self.size_bytes());
            let part = &self.bytes[usize::try_from(at).unwrap()..usize::try_from(end).unwrap()];
            Extent { len: end - at, zero: part.iter().all(|byte| *byte == 0) }
        };
        Ok(blocks.map(extent).collect())
    }

    fn is_at_hand(&self, _: Range<u64>) -> bool {
        self.at_hand
    }
}

struct Scene {
    server: Option<Server>,
    folder: tempfile::TempDir,
}

impl Scene {
    fn of(disk: Memory) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener::bind(&Place::Unix(folder.path().join("s"))).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let exports = Exports::new(vec![("root".into(), Arc::clone(&disk))], Some(disk));
        Self { server: Some(Server::start(listener, exports).unwrap()), folder }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("s")
    }

    fn address(&self, export: &str) -> Address {
        format!("nbd+unix:///{export}?socket={}", self.socket().display()).parse().unwrap()
    }

    fn export(&self) -> Export {
        Export::connect(&self.address("")).unwrap()
    }

    /// A client that has chosen the export by hand, without structured replies.
    fn by_hand(&self) -> UnixStream {
        let mut socket = greeted(&self.socket());
        socket.write_all(&encode_option(option::EXPORT_NAME, b"root").unwrap()).unwrap();
        let mut answer = [0; 10];
        socket.read_exact(&mut answer).unwrap();
        socket
    }

    fn wait_for_clients(&self, count: usize) {
        while self.server.as_ref().unwrap().clients() != count {
            std::thread::yield_now();
        }
    }
}

fn greeted(socket: &Path) -> UnixStream {
    let mut socket = UnixStream::connect(socket).unwrap();
    let mut greeting = [0; 18];
    socket.read_exact(&mut greeting).unwrap();
    socket.write_all(&3u32.to_be_bytes()).unwrap();
    socket
}

fn request(command: u16, offset: u64, len: u32) -> Vec<u8> {
    Request { flags: 0, command, cookie: 7, offset, len }.encode()
}

/// The error of a simple reply to a request made by `request`.
fn simple(socket: &mut UnixStream) -> u32 {
    assert_eq!(read_u32(socket).unwrap(), crate::wire::SIMPLE_REPLY_MAGIC);
    let error = read_u32(socket).unwrap();
    assert_eq!(read_u64(socket).unwrap(), 7);
    error
}

/// Answer to an option: its kind and data.
fn ask(socket: &mut UnixStream, option: u32, data: &[u8]) -> (u32, Vec<u8>) {
    socket.write_all(&encode_option(option, data).unwrap()).unwrap();
    reply(socket)
}

fn reply(socket: &mut UnixStream) -> (u32, Vec<u8>) {
    read_u64(socket).unwrap();
    read_u32(socket).unwrap();
    let kind = read_u32(socket).unwrap();
    let mut data = vec![0; read_u32(socket).unwrap() as usize];
    socket.read_exact(&mut data).unwrap();
    (kind, data)
}

fn is_closed(socket: &mut UnixStream) -> bool {
    // A reset is an end, too.
    !matches!(socket.read(&mut [0; 1]), Ok(1..))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn our_client_reads_what_our_server_has(
        len in 1usize..1_200_000, map: u64, at_hand: bool, from: usize, size in 1usize..900_000,
    ) {
        let bytes = disk(len, map);
        let scene = Scene::of(Memory { bytes: bytes.clone(), at_hand, ..Memory::default() });
        let export = scene.export();
        prop_assert_eq!(export.size_bytes(), len as u64);
        let from = from % len;
        let end = (from + size).min(len);
        let mut read = vec![0xEE; end - from];
        export.read_at(from as u64, &mut read).unwrap();
        prop_assert!(read == bytes[from..end]);
        let mut at = from;
        for extent in export.extents(from as u64..end as u64).unwrap() {
            let next = at + usize::try_from(extent.len).unwrap();
            prop_assert!(!extent.zero || bytes[at..next].iter().all(|byte| *byte == 0));
            at = next;
        }
        prop_assert!(at >= end);
    }

    #[test]
    fn a_client_of_any_bytes_harms_only_itself(bytes: Vec<u8>, begins in 0u8..4, chosen: bool) {
        let scene = Scene::of(Memory { bytes: disk(5000, 3), ..Memory::default() });
        let mut liar = if chosen { scene.by_hand() } else { greeted(&scene.socket()) };
        let begin = match (chosen, begins) {
            (_, 0) => Vec::new(),
            (false, 1) => OPTION_MAGIC.to_be_bytes().to_vec(),
            (false, _) => [&OPTION_MAGIC.to_be_bytes()[..], &u32::from(begins + 4).to_be_bytes()].concat(),
            (true, _) => request(command::READ, 0, u32::from(begins)),
        };
        // It may be thrown out meanwhile.
        let _ = liar.write_all(&[begin, bytes].concat());
        let mut read = [0; 5000];
        scene.export().read_at(0, &mut read).unwrap();
        prop_assert!(read == disk(5000, 3)[..]);
        drop(liar);
        scene.wait_for_clients(0);
    }
}

#[test]
fn exports_are_listed_and_others_are_refused() {
    let scene = Scene::of(Memory { bytes: disk(5000, 3), ..Memory::default() });
    let mut socket = greeted(&scene.socket());
    let (kind, name) = ask(&mut socket, option::LIST, &[]);
    assert_eq!((kind, name), (option_reply::SERVER, encode_text("root").unwrap()));
    assert_eq!(reply(&mut socket).0, option_reply::ACK);
    assert_eq!(ask(&mut socket, option::LIST, b"x").0, option_reply::INVALID);
    assert_eq!(ask(&mut socket, option::STARTTLS, &[]).0, option_reply::UNSUPPORTED);
    let info = |name: &str| [encode_text(name).unwrap(), vec![0, 0]].concat();
    let (kind, text) = ask(&mut socket, option::INFO, &info("rot"));
    assert!(kind == option_reply::UNKNOWN && text.ends_with(b"root"), "{kind} {text:?}");
    for wrong in [&b""[..], &[0, 0, 0, 9, 0, 0], &[0xFF; 8], &[0, 0, 0, 0, 0, 2, 0, 0]] {
        assert_eq!(ask(&mut socket, option::GO, wrong).0, option_reply::INVALID, "{wrong:?}");
    }
    // Contexts need structured replies, and are for one export.
    let query =
        [encode_text("").unwrap(), 1u32.to_be_bytes().to_vec(), encode_text("base:allocation").unwrap()]
            .concat();
    assert_eq!(ask(&mut socket, option::SET_META_CONTEXT, &query).0, option_reply::INVALID);
    assert_eq!(ask(&mut socket, option::STRUCTURED_REPLY, &[]).0, option_reply::ACK);
    assert_eq!(ask(&mut socket, option::SET_META_CONTEXT, &query).0, option_reply::META_CONTEXT);
    assert_eq!(reply(&mut socket).0, option_reply::ACK);
    assert_eq!(ask(&mut socket, option::SET_META_CONTEXT, &query[..9]).0, option_reply::INVALID);
    assert_eq!(ask(&mut socket, option::GO, &info("root")).0, option_reply::INFO);
    assert_eq!((reply(&mut socket).0, reply(&mut socket).0), (option_reply::INFO, option_reply::ACK));
    socket.write_all(&request(command::BLOCK_STATUS, 0, 512)).unwrap();
    assert_eq!(
        (read_u32(&mut socket).unwrap(), read_u16(&mut socket).unwrap()),
        (crate::wire::CHUNK_MAGIC, 1)
    );
    assert_eq!(read_u16(&mut socket).unwrap(), crate::wire::chunk::FAILED, "they were chosen for another");
    assert!(matches!(Export::connect(&scene.address("other")), Err(NbdError::Refused { .. })));
    // An option that is longer than any is not waited for.
    let mut long = greeted(&scene.socket());
    let head =
        [&OPTION_MAGIC.to_be_bytes()[..], &option::LIST.to_be_bytes(), &u32::MAX.to_be_bytes()].concat();
    long.write_all(&head).unwrap();
    assert!(is_closed(&mut long));
}

#[test]
fn only_reads_within_the_disk_are_answered_with_data() {
    let bytes = disk(600_000, 0x1234_5678);
    let scene = Scene::of(Memory { bytes: bytes.clone(), ..Memory::default() });
    let mut socket = scene.by_hand();
    for (command, offset, len, error) in [
        (command::WRITE, 0, 1000, 1),
        (command::TRIM, 0, 512, 1),
        (command::WRITE_ZEROES, 0, 512, 1),
        (99, 0, 512, 22),
        (command::BLOCK_STATUS, 0, 512, 22),
        (command::READ, 600_000, 1, 22),
        (command::READ, u64::MAX, 2, 22),
        (command::READ, 0, 0, 22),
        (command::READ, 0, (32 << 20) + 1, 22),
        (command::READ, 0, u32::MAX, 22),
    ] {
        socket.write_all(&request(command, offset, len)).unwrap();
        if command == command::WRITE {
            socket.write_all(&vec![9; len as usize]).unwrap();
        }
        assert_eq!(simple(&mut socket), error, "command {command} at {offset} + {len}");
    }
    socket.write_all(&request(command::READ, 1, 599_999)).unwrap();
    assert_eq!(simple(&mut socket), 0);
    let mut read = vec![0; 599_999];
    socket.read_exact(&mut read).unwrap();
    assert!(read == bytes[1..]);
    // Data of a write that no server takes are not read.
    socket.write_all(&request(command::WRITE, 0, u32::MAX)).unwrap();
    assert!(is_closed(&mut socket));
    assert_eq!(u32::from(NO_ZEROES), 2);
}

#[test]
fn an_error_is_told_and_leaves_the_connection() {
    let bytes = disk(600_000, 9);
    let scene = Scene::of(Memory { bytes: bytes.clone(), fails: true, ..Memory::default() });
    let export = scene.export();
    let error = export.read_at(0, &mut vec![0; 600_000]).unwrap_err().to_string();
    assert!(error.contains("error 5") && error.contains("the medium is  [1mbad"), "{error}");
    assert!(matches!(export.extents(0..10), Err(NbdError::Answered(_))));
    let mut read = vec![0; 100];
    export.read_at(5, &mut read).unwrap();
    assert!(read == bytes[5..105]);
    // Without chunks, the first part can be told of; what comes later ends the connection.
    let mut old = scene.by_hand();
    old.write_all(&request(command::READ, 599_000, 1000)).unwrap();
    assert_eq!(simple(&mut old), 5);
    old.write_all(&request(command::READ, 0, 600_000)).unwrap();
    assert_eq!(simple(&mut old), 0);
    let mut rest = Vec::new();
    let _ = old.read_to_end(&mut rest);
    assert!(rest.len() < 600_000 && bytes.starts_with(&rest));
}

#[test]
fn a_read_that_waits_holds_up_no_other_and_a_server_ends_all_the_same() {
    let gate = Arc::new(Gate::default());
    let bytes = disk(5000, 9);
    let mut scene =
        Scene::of(Memory { bytes: bytes.clone(), waits: Some(Arc::clone(&gate)), ..Memory::default() });
    let mut socket = scene.by_hand();
    socket.write_all(&request(command::READ, 4000, 1000)).unwrap();
    let mut read = [0; 1000];
    for _ in 0..100 {
        socket.write_all(&request(command::READ, 0, 1000)).unwrap();
        assert_eq!(simple(&mut socket), 0);
        socket.read_exact(&mut read).unwrap();
        assert!(read == bytes[..1000]);
    }
    gate.open();
    assert_eq!(simple(&mut socket), 0);
    socket.read_exact(&mut read).unwrap();
    assert!(read == bytes[4000..]);
    // One client does not read its answers, another waits for data.
    *gate.open.lock() = false;
    let mut unread = scene.by_hand();
    unread.set_nonblocking(true).unwrap();
    let all: Vec<u8> = std::iter::repeat_n(request(command::READ, 0, 4000), 4000).flatten().collect();
    assert!(unread.write(&all).unwrap() > 0);
    socket.write_all(&request(command::READ, 4000, 1000)).unwrap();
    scene.server.take();
    assert!(!scene.socket().exists());
    assert!(is_closed(&mut socket));
    gate.open();
}

#[test]
fn clients_beyond_the_limit_are_turned_away_until_one_leaves() {
    let scene = Scene::of(Memory { bytes: disk(5000, 9), ..Memory::default() });
    let mut clients: Vec<UnixStream> = (0..CLIENTS_MAX).map(|_| scene.by_hand()).collect();
    let mut one_more = UnixStream::connect(scene.socket()).unwrap();
    assert!(is_closed(&mut one_more));
    clients.pop();
    scene.wait_for_clients(CLIENTS_MAX - 1);
    drop(scene.by_hand());
}
