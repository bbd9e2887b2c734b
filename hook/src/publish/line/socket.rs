//! A Unix socket to a trusted server. The program may close its descriptor, like any other of the process.

use std::{
    ffi::c_int,
    io,
    mem::{MaybeUninit, size_of},
    os::{
        fd::{AsFd as _, AsRawFd, FromRawFd as _, IntoRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    ptr,
};

use xpu_wire::{
    endpoint::{is_trusted_socket, peer_user, user_id},
    ledger::out_of_the_way,
};

/// Maximum number of bytes received at one visit.
const PIECE: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Socket {
    /// If the program has taken over the descriptor, it is abandoned and not closed.
    descriptor: Option<OwnedFd>,
    /// Device and inode of the socket.
    file: (u64, u64),
    buffer: Box<[u8]>,
}

#[derive(Debug)]
pub(super) enum Received<'a> {
    Nothing,
    Bytes(&'a [u8]),
    /// The server has closed the connection.
    End,
}

impl Socket {
    /// Connects. `None` if there is no server at the path, or if it is not trusted.
    pub(super) fn connect(path: &Path) -> Option<Self> {
        let user = user_id();
        if !is_trusted_socket(path, user).unwrap_or(false) {
            return None;
        }
        let descriptor = open()?;
        let (address, length) = address_of(path)?;
        // SAFETY: the address has this length.
        let connected = unsafe { libc::connect(descriptor.as_raw_fd(), (&raw const address).cast(), length) };
        if connected != 0 || !peer_user(descriptor.as_fd()).is_ok_and(|peer| [user, 0].contains(&peer)) {
            return None;
        }
        let file = file_of(descriptor.as_raw_fd())?;
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(PIECE).ok()?;
        buffer.resize(PIECE, 0);
        Some(Self { descriptor: Some(descriptor), file, buffer: buffer.into_boxed_slice() })
    }

    /// Whether the descriptor is still the socket that was opened: some programs close all descriptors that
    /// they do not know, and then open other files.
    pub(super) fn is_ours(&mut self) -> bool {
        let number = self.number();
        let same = file_of(number) == Some(self.file);
        if !same && let Some(descriptor) = self.descriptor.take() {
            let _ = descriptor.into_raw_fd();
        }
        same
    }

    fn number(&self) -> c_int {
        self.descriptor.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Number of bytes sent; 0 if none can be sent now. `None` if the connection has ended.
    pub(super) fn send(&self, bytes: &[u8]) -> Option<usize> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: pointer and length are those of `bytes`.
        let sent = unsafe { libc::send(self.number(), bytes.as_ptr().cast(), bytes.len(), flags) };
        usize::try_from(sent).ok().or_else(|| would_block().then_some(0))
    }

    pub(super) fn receive(&mut self) -> Received<'_> {
        let number = self.number();
        // SAFETY: pointer and length are those of the buffer.
        let count = unsafe {
            libc::recv(number, self.buffer.as_mut_ptr().cast(), self.buffer.len(), libc::MSG_DONTWAIT)
        };
        match usize::try_from(count) {
            Ok(0) => Received::End,
            Ok(count) => Received::Bytes(&self.buffer[..count]),
            Err(_) if would_block() => Received::Nothing,
            Err(_) => Received::End,
        }
    }
}

fn would_block() -> bool {
    matches!(io::Error::last_os_error().kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn open() -> Option<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket has no precondition.
    let low = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if low < 0 {
        return None;
    }
    // SAFETY: it was just opened, and belongs to nobody else.
    Some(out_of_the_way(unsafe { OwnedFd::from_raw_fd(low) }))
}

fn address_of(path: &Path) -> Option<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: an all-zero address is valid storage.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return None;
    }
    for (to, &from) in address.sun_path.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    Some((address, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

fn file_of(descriptor: c_int) -> Option<(u64, u64)> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: on success all of `found` was written.
    unsafe {
        if libc::fstat(descriptor, found.as_mut_ptr()) != 0 {
            return None;
        }
        let place: *const libc::stat = found.as_ptr();
        Some((ptr::read(&raw const (*place).st_dev), ptr::read(&raw const (*place).st_ino)))
    }
}
