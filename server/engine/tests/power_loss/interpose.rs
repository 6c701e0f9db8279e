//! The functions of the C library that change files, defined here.
//!
//! A definition in the executable takes the place of the library's for everything that is linked into it: Rust's
//! standard library, rustix (its feature `use-libc`, otherwise it would make system calls by itself) and SQLite. Each
//! makes the real system call, and tells the recorder what it did to a watched folder. Nothing is flushed for real:
//! what a flush promises is in the recording, and simulated crashes are made from that.
//!
//! Only what this process uses is here. A call that is missing shows when a recording, applied whole, is compared
//! with the folder it was taken from ([`crate::campaign`] does, for each).
//!
//! This is the only file with `unsafe`: pointers come from callers who keep the C library's contract.
#![allow(
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    clippy::cast_possible_truncation,
    reason = "the functions of the C library, with its contracts and its types"
)]

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use libc::{AT_FDCWD, c_char, c_int, c_long, c_uint, c_void, iovec, mode_t, off_t, size_t, ssize_t};

use crate::recorder::{Event, Watch};

const fn int(answer: c_long) -> c_int {
    answer as c_int
}

/// Device and inode of an open file that still has a name.
fn identity(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: all zeros is a valid `stat`, which `fstat` fills.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let answer = unsafe { libc::fstat(fd, &raw mut found) };
    (answer == 0 && found.st_nlink > 0).then_some((found.st_dev, found.st_ino))
}

/// `None` for what is relative to something else than the root: the engine's folder is given by an absolute path.
unsafe fn path_of(folder: c_int, path: *const c_char) -> Option<PathBuf> {
    // SAFETY: a C string, as the callers of these functions promise.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    if path.is_absolute() {
        return Some(path.to_owned());
    }
    if folder == AT_FDCWD {
        return None;
    }
    let folder = std::fs::read_link(format!("/proc/self/fd/{folder}")).ok()?;
    Some(folder.join(path))
}

unsafe fn watched(folder: c_int, path: *const c_char) -> Option<(Watch, PathBuf)> {
    // SAFETY: as the caller.
    let path = unsafe { path_of(folder, path) }?;
    Some((Watch::path(&path)?, path))
}

unsafe fn open_file(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let call = || int(unsafe { libc::syscall(libc::SYS_openat, folder, path, flags, mode) });
    if flags & (libc::O_CREAT | libc::O_TRUNC) == 0 {
        return call();
    }
    // SAFETY: as the caller.
    let Some((mut watch, path)) = (unsafe { watched(folder, path) }) else { return call() };
    let existing = watch.node(&path);
    let fd = call();
    if fd < 0 {
        return fd;
    }
    match (existing, identity(fd)) {
        (None, Some(identity)) => watch.created(&path, identity, false),
        (Some(node), _) if flags & libc::O_TRUNC != 0 => watch.push(Event::Resize { node, len: 0 }),
        _ => {}
    }
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    unsafe { open_file(AT_FDCWD, path, flags, mode) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    unsafe { open_file(AT_FDCWD, path, flags, mode) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    unsafe { open_file(folder, path, flags, mode) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    unsafe { open_file(folder, path, flags, mode) }
}

/// Makes a call that writes `pieces` at `at`, or where the file's own position is.
unsafe fn written(
    fd: c_int,
    pieces: &[(*const c_void, usize)],
    at: Option<off_t>,
    call: impl FnOnce() -> c_long,
) -> ssize_t {
    let Some((mut watch, node)) = Watch::file(|| identity(fd)) else { return call() as ssize_t };
    let answer = call() as ssize_t;
    let Ok(count) = usize::try_from(answer) else { return answer };
    let mut bytes = Vec::with_capacity(count);
    for &(start, len) in pieces {
        // SAFETY: the call read these bytes.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) });
    }
    bytes.truncate(count);
    // SAFETY: a plain call. The position is right also after a file opened for appending was written to.
    let at = at.unwrap_or_else(|| unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } - answer as off_t);
    watch.push(Event::Write { node, at: u64::try_from(at).unwrap_or(0), bytes: bytes.into() });
    answer
}

unsafe fn write_at(fd: c_int, bytes: *const c_void, len: size_t, at: off_t) -> ssize_t {
    unsafe {
        written(fd, &[(bytes, len)], Some(at), || libc::syscall(libc::SYS_pwrite64, fd, bytes, len, at))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t {
    unsafe { written(fd, &[(bytes, len)], None, || libc::syscall(libc::SYS_write, fd, bytes, len)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(fd: c_int, bytes: *const c_void, len: size_t, at: off_t) -> ssize_t {
    unsafe { write_at(fd, bytes, len, at) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(fd: c_int, bytes: *const c_void, len: size_t, at: off_t) -> ssize_t {
    unsafe { write_at(fd, bytes, len, at) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    let given = unsafe { std::slice::from_raw_parts(pieces, usize::try_from(count).unwrap_or(0)) };
    let given: Vec<_> = given.iter().map(|piece| (piece.iov_base.cast_const(), piece.iov_len)).collect();
    unsafe { written(fd, &given, None, || libc::syscall(libc::SYS_writev, fd, pieces, count)) }
}

unsafe fn resize(fd: c_int, len: off_t) -> c_int {
    let call = || int(unsafe { libc::syscall(libc::SYS_ftruncate, fd, len) });
    let Some((mut watch, node)) = Watch::file(|| identity(fd)) else { return call() };
    let answer = call();
    if answer == 0 {
        watch.push(Event::Resize { node, len: u64::try_from(len).unwrap_or(0) });
    }
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate(fd: c_int, len: off_t) -> c_int {
    unsafe { resize(fd, len) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate64(fd: c_int, len: off_t) -> c_int {
    unsafe { resize(fd, len) }
}

/// Succeeds at once: the recording says what a disk had then.
fn sync(fd: c_int) -> c_int {
    if let Some((mut watch, node)) = Watch::file(|| identity(fd)) {
        watch.push(Event::Sync { node });
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    sync(fd)
}
#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(fd)
}

unsafe fn rename_file(
    (from_folder, from): (c_int, *const c_char),
    (to_folder, to): (c_int, *const c_char),
    flags: c_uint,
) -> c_int {
    let call = || int(unsafe { libc::syscall(libc::SYS_renameat2, from_folder, from, to_folder, to, flags) });
    // SAFETY: as the caller.
    let Some((mut watch, to)) = (unsafe { watched(to_folder, to) }) else { return call() };
    let from = unsafe { path_of(from_folder, from) };
    let answer = call();
    if let (0, Some(from)) = (answer, from)
        && let Some(node) = watch.node(&from)
    {
        watch.bind(&to, Some(node));
        watch.bind(&from, None);
    }
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    unsafe { rename_file((AT_FDCWD, from), (AT_FDCWD, to), 0) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn renameat(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
) -> c_int {
    unsafe { rename_file((from_folder, from), (to_folder, to), 0) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    unsafe { rename_file((from_folder, from), (to_folder, to), flags) }
}

unsafe fn link_file(
    (from_folder, from): (c_int, *const c_char),
    (to_folder, to): (c_int, *const c_char),
    flags: c_int,
) -> c_int {
    let call = || int(unsafe { libc::syscall(libc::SYS_linkat, from_folder, from, to_folder, to, flags) });
    // SAFETY: as the caller.
    let Some((mut watch, to)) = (unsafe { watched(to_folder, to) }) else { return call() };
    let from = unsafe { path_of(from_folder, from) };
    let answer = call();
    if let (0, Some(from)) = (answer, from)
        && let Some(node) = watch.node(&from)
    {
        watch.bind(&to, Some(node));
    }
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    unsafe { link_file((AT_FDCWD, from), (AT_FDCWD, to), 0) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    unsafe { link_file((from_folder, from), (to_folder, to), flags) }
}

unsafe fn remove(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    let call = || int(unsafe { libc::syscall(libc::SYS_unlinkat, folder, path, flags) });
    // SAFETY: as the caller.
    let Some((mut watch, path)) = (unsafe { watched(folder, path) }) else { return call() };
    let answer = call();
    if answer == 0 {
        watch.bind(&path, None);
    }
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    unsafe { remove(AT_FDCWD, path, 0) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    unsafe { remove(folder, path, flags) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    unsafe { remove(AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

unsafe fn make_folder(folder: c_int, path: *const c_char, mode: mode_t) -> c_int {
    let call = || int(unsafe { libc::syscall(libc::SYS_mkdirat, folder, path, mode) });
    // SAFETY: as the caller.
    let Some((mut watch, path)) = (unsafe { watched(folder, path) }) else { return call() };
    let answer = call();
    if answer == 0 {
        use std::os::unix::fs::MetadataExt as _;
        if let Ok(found) = std::fs::symlink_metadata(&path) {
            watch.created(&path, (found.dev(), found.ino()), true);
        }
    }
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    unsafe { make_folder(AT_FDCWD, path, mode) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn mkdirat(folder: c_int, path: *const c_char, mode: mode_t) -> c_int {
    unsafe { make_folder(folder, path, mode) }
}
