//! The socket that Kineto's clients poll. Every answer is sent from it, because clients expect answers from the
//! name to which it is bound.

use std::{
    fs, io, mem,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
        unix::{
            ffi::OsStrExt as _,
            fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
            net::UnixDatagram,
        },
    },
    path::PathBuf,
    ptr,
};

use super::{
    datagram::LARGEST,
    name::{KinetoName, Peer},
};

/// A datagram, and its sender as the kernel reports it. `pid` is the sender's process id here, 0 if the
/// process is not visible.
#[derive(Debug)]
pub(super) struct Received<'a> {
    pub peer: Peer,
    pub pid: u32,
    pub uid: u32,
    /// `None` if it is longer than any message.
    pub bytes: Option<&'a [u8]>,
}

#[derive(Debug)]
pub(super) struct Socket {
    datagrams: UnixDatagram,
    name: KinetoName,
    /// The socket's file, if the name is in a folder.
    file: Option<File>,
    buffer: [u8; LARGEST],
}

/// A socket's file. A bound name in a folder is not protected: dynolog removes the file that it finds there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    path: PathBuf,
    /// The file's device and inode.
    identity: (u64, u64),
}

impl File {
    fn at(path: PathBuf) -> io::Result<Self> {
        let found = fs::symlink_metadata(&path)?;
        Ok(Self { path, identity: (found.dev(), found.ino()) })
    }

    fn is_there(&self) -> bool {
        Self::at(self.path.clone()).is_ok_and(|found| found == *self)
    }
}

impl Socket {
    /// # Errors
    /// `AddrInUse` if another daemon has the name.
    pub(super) fn bind(name: &KinetoName) -> io::Result<Self> {
        let socket = make()?;
        let file = match name {
            KinetoName::Off => return Err(io::ErrorKind::Unsupported.into()),
            KinetoName::Abstract(text) => {
                // The final NUL is part of the name that clients poll.
                bind(&socket, &[b"\0", &text[..], b"\0"].concat())?;
                None
            }
            KinetoName::Folder(folder) => Some(bind_in_folder(&socket, KinetoName::path(folder))?),
        };
        Ok(Self { datagrams: socket.into(), name: name.clone(), file, buffer: [0; LARGEST] })
    }

    /// Whether clients that poll the name still reach this socket.
    pub(super) fn has_its_name(&self) -> bool {
        self.file.as_ref().is_none_or(File::is_there)
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.datagrams.as_raw_fd()
    }

    /// The next waiting datagram, if any.
    pub(super) fn receive(&mut self) -> io::Result<Option<Received<'_>>> {
        let mut piece = libc::iovec { iov_base: self.buffer.as_mut_ptr().cast(), iov_len: LARGEST };
        // SAFETY: a sockaddr_un of zeros is valid, and has no name.
        let mut from: libc::sockaddr_un = unsafe { mem::zeroed() };
        // The space is for credentials only, so that the kernel closes descriptors that a sender passes
        // along.
        let mut control = Control::default();
        // SAFETY: a msghdr of zeros is valid, and empty.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_name = (&raw mut from).cast();
        header.msg_namelen = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        (header.msg_iov, header.msg_iovlen) = (&raw mut piece, 1);
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = Control::SPACE as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: everything that the header points to has the stated length, and lives for the length of the
        // call.
        let length = unsafe { libc::recvmsg(self.descriptor(), &raw mut header, flags) };
        let Ok(length) = usize::try_from(length) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        };
        let is_whole = header.msg_flags & libc::MSG_TRUNC == 0;
        let sender = credentials(&header);
        let named = (header.msg_namelen as usize).saturating_sub(PATH_AT).min(from.sun_path.len());
        let peer = Peer(from.sun_path[..named].iter().map(|&letter| letter as u8).collect());
        let (pid, uid) = sender.map_or((0, u32::MAX), |sender| (sender.pid as u32, sender.uid));
        Ok(Some(Received { peer, pid, uid, bytes: is_whole.then(|| &self.buffer[..length]) }))
    }

    /// Sends without waiting. Sends nothing to a client that would not expect an answer from this name.
    pub(super) fn send(&self, peer: &Peer, bytes: &[u8]) -> bool {
        if !self.name.is_expected_by(peer) {
            return false;
        }
        let (address, length) = address(&peer.0);
        // SAFETY: bytes and address live for the length of the call, with the lengths given.
        let sent = unsafe {
            libc::sendto(
                self.descriptor(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                (&raw const address).cast(),
                length,
            )
        };
        usize::try_from(sent) == Ok(bytes.len())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Another daemon's file stays.
        if let Some(file) = self.file.as_ref().filter(|file| file.is_there()) {
            let _ = fs::remove_file(&file.path);
        }
    }
}

fn make() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let on: libc::c_int = 1;
    // SAFETY: the option takes an int, which lives for the length of the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if set == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

/// Offset of the name in an address.
const PATH_AT: usize = mem::offset_of!(libc::sockaddr_un, sun_path);

/// The address of a name. Abstract names begin with NUL. A name that is too long is cut, and then matches no
/// socket.
fn address(name: &[u8]) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: a sockaddr_un of zeros is valid, and has no name.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, &from) in address.sun_path.iter_mut().zip(name) {
        *to = from as libc::c_char;
    }
    (address, (PATH_AT + name.len().min(address.sun_path.len())) as libc::socklen_t)
}

fn bind(socket: &OwnedFd, name: &[u8]) -> io::Result<()> {
    let (address, length) = address(name);
    if name.len() >= address.sun_path.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is too long for a socket"));
    }
    // SAFETY: the address lives for the length of the call, which has its length.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Binds a name in a folder. Replaces a socket that a daemon left behind, never a live one.
fn bind_in_folder(socket: &OwnedFd, path: PathBuf) -> io::Result<File> {
    if UnixDatagram::unbound()?.connect(&path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    if fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(&path)?;
    }
    // Kineto's clients end the name with NUL, and include the NUL in its length.
    bind(socket, &[path.as_os_str().as_bytes(), b"\0"].concat())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    File::at(path)
}

/// Space for a message's control data, correctly aligned.
#[repr(C, align(8))]
#[derive(Default)]
struct Control([u8; 32]);

impl Control {
    // SAFETY: arithmetic on a length.
    const SPACE: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) as usize };
}

const _: () = assert!(Control::SPACE <= size_of::<Control>());

fn credentials(header: &libc::msghdr) -> Option<libc::ucred> {
    // SAFETY: the kernel filled in the control data and its length.
    let first = unsafe { libc::CMSG_FIRSTHDR(ptr::from_ref(header)) };
    if first.is_null() {
        return None;
    }
    // SAFETY: it points into the control data, as the call above promises.
    let (level, kind) = unsafe { ((*first).cmsg_level, (*first).cmsg_type) };
    if (level, kind) != (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) {
        return None;
    }
    // SAFETY: credentials follow such a header, and may be unaligned.
    Some(unsafe { libc::CMSG_DATA(first).cast::<libc::ucred>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use std::{os::linux::net::SocketAddrExt as _, os::unix::net::SocketAddr, process};

    use super::{super::name::CLIENT, *};

    fn unique(what: &str) -> Vec<u8> {
        format!("xpu-top-test-{what}-{}", process::id()).into_bytes()
    }

    /// A client by its name, which ends with NUL as Kineto's do.
    fn client(name: &[u8]) -> UnixDatagram {
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name([name, b"\0"].concat()).unwrap()).unwrap()
    }

    fn daemon(name: &[u8]) -> SocketAddr {
        SocketAddr::from_abstract_name([name, b"\0"].concat()).unwrap()
    }

    #[test]
    fn a_client_is_identified_by_the_kernel_and_answered_from_the_name_it_asked_at() {
        let name = unique("asks");
        let mut socket = Socket::bind(&KinetoName::Abstract(name.clone())).unwrap();
        let other = client(&[CLIENT, &unique("asks")].concat());
        other.send_to_addr(b"hello", &daemon(&name)).unwrap();
        let received = socket.receive().unwrap().unwrap();
        assert_eq!((received.pid, received.uid), (process::id(), xpu_wire::endpoint::user_id()));
        assert_eq!(received.bytes, Some(&b"hello"[..]));
        let peer = received.peer.clone();
        assert!(socket.send(&peer, b"answer"));
        let mut buffer = [0; 16];
        let (length, from) = other.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"answer");
        assert_eq!(from.as_abstract_name(), Some(&[&name[..], b"\0"].concat()[..]));
        assert!(socket.receive().unwrap().is_none(), "nothing is waited for");
    }

    #[test]
    fn a_too_long_message_is_dropped_and_a_nameless_client_gets_no_answer() {
        let name = unique("long");
        let mut socket = Socket::bind(&KinetoName::Abstract(name.clone())).unwrap();
        UnixDatagram::unbound().unwrap().send_to_addr(&[1; LARGEST + 1], &daemon(&name)).unwrap();
        let received = socket.receive().unwrap().unwrap();
        assert_eq!(received.bytes, None);
        let peer = received.peer.clone();
        assert!(!socket.send(&peer, b"answer"));
    }

    #[test]
    fn a_name_that_another_has_is_left_to_it() {
        let name = KinetoName::Abstract(unique("taken"));
        let first = Socket::bind(&name).unwrap();
        assert_eq!(Socket::bind(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        Socket::bind(&name).unwrap();
    }

    #[test]
    fn only_clients_with_the_same_spelling_of_the_folder_are_answered() {
        let folder = tempfile::tempdir().unwrap();
        let spelled = folder.path().to_str().unwrap();
        let name = KinetoName::Folder(spelled.into());
        // The file of a daemon that has ended does not count as a daemon.
        drop(UnixDatagram::bind(folder.path().join("dynolog")).unwrap());
        let mut socket = Socket::bind(&name).unwrap();
        assert_eq!(Socket::bind(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        for (path, is_answered) in [
            (format!("{spelled}/dynoconfigclient1"), true),
            (format!("{spelled}//dynoconfigclient2"), false),
            (format!("{spelled}/inner/../dynoconfigclient3"), false),
            (format!("{spelled}/someone"), false),
        ] {
            let other = UnixDatagram::bind(&path).unwrap();
            other.send_to(b"hello", folder.path().join("dynolog")).unwrap();
            let peer = socket.receive().unwrap().unwrap().peer.clone();
            assert_eq!(socket.send(&peer, b"answer"), is_answered, "{path}");
            let why = name.why_unexpected(&peer);
            assert_eq!(why.is_none(), is_answered, "{path}: {why:?}");
            if let (Some(why), Some((theirs, _))) = (why, path.rsplit_once("/dynoconfigclient")) {
                let (theirs, ours) = (format!("DIR={theirs}, "), format!("DIR={spelled}: "));
                assert!(why.contains(&theirs) && why.contains(&ours), "{why}");
            }
        }
        drop(socket);
        assert!(!folder.path().join("dynolog").exists());
    }

    #[test]
    fn a_name_in_a_folder_that_another_takes_is_lost_and_its_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dynolog");
        let socket = Socket::bind(&KinetoName::Folder(folder.path().into())).unwrap();
        assert!(socket.has_its_name());
        // dynolog does this when it starts.
        fs::remove_file(&path).unwrap();
        assert!(!socket.has_its_name());
        let other = UnixDatagram::bind(&path).unwrap();
        assert!(!socket.has_its_name());
        drop(socket);
        UnixDatagram::unbound().unwrap().send_to(b"hello", &path).unwrap();
        assert_eq!(other.recv(&mut [0; 8]).unwrap(), 5);
    }
}
