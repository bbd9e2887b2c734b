//! Owner checks for directories, sockets and peers. Another user may have created a path in `/tmp` first.
//!
//! The hook calls this too, on threads with small stacks: nothing here allocates, except for paths of more
//! than a few hundred bytes.

use std::{
    fs::{self, Metadata},
    io,
    mem::zeroed,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd},
        unix::{
            fs::{FileTypeExt as _, MetadataExt as _},
            net::UnixStream,
        },
    },
    path::Path,
};

use super::user_id;

/// Write permission of the group and of all others.
const WRITABLE: u32 = 0o022;

/// The sticky bit: only owners can remove files in a directory that has it.
const STICKY: u32 = 0o1000;

/// Why others may control a directory's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    #[error("it is a symbolic link")]
    Link,
    #[error("it is not a directory")]
    NotADirectory,
    #[error("it belongs to user {0}")]
    Owner(u32),
    #[error("others can write to it (mode {0:o})")]
    Writable(u32),
}

/// Checks that this is a real directory of one of these users, and that no other user can write to it.
pub(super) fn owned(found: &Metadata, owners: &[u32]) -> Result<(), Foreign> {
    let mode = found.mode() & 0o7777;
    match found {
        _ if found.is_symlink() => Err(Foreign::Link),
        _ if !found.is_dir() => Err(Foreign::NotADirectory),
        _ if !owners.contains(&found.uid()) => Err(Foreign::Owner(found.uid())),
        _ if mode & WRITABLE != 0 => Err(Foreign::Writable(mode)),
        _ => Ok(()),
    }
}

/// Checks that no other user can remove or replace the files of `user` in this directory: it is the user's
/// own, or a sticky one like `/tmp`.
pub(super) fn keeps(found: &Metadata, user: u32) -> Result<(), Foreign> {
    if found.is_dir() && [user, 0].contains(&found.uid()) && found.mode() & STICKY != 0 {
        return Ok(());
    }
    owned(found, &[user])
}

/// Whether `path` is a socket of `user` or root, in a directory of `user` or root that no other user can
/// write to. Neither may be a symbolic link. An error means that one of them cannot be read: `NotFound` while
/// there is no collector yet.
///
/// A user who can replace the directory above can still do so after this check: check [`peer_user`] of the
/// connection as well.
pub fn is_trusted_socket(path: &Path, user: u32) -> io::Result<bool> {
    let owners = [user, 0];
    let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
        return Ok(false);
    };
    if owned(&fs::symlink_metadata(parent)?, &owners).is_err() {
        return Ok(false);
    }
    let socket = fs::symlink_metadata(path)?;
    Ok(socket.file_type().is_socket() && owners.contains(&socket.uid()))
}

/// The user at the other end of a connected Unix socket, as the kernel reports it: the user of the process
/// that called `listen` or `connect`.
pub fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: all-zero bytes are a ucred.
    let mut peer: libc::ucred = unsafe { zeroed() };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as it is borrowed; pointer and length describe `peer`.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if rc == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

/// A connection to a socket of this user or root, served by this user or root; `PermissionDenied` if it
/// belongs to another user.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let user = user_id();
    if !is_trusted_socket(path, user)? {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let stream = UnixStream::connect(path)?;
    if ![user, 0].contains(&peer_user(stream.as_fd())?) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::{
            fs::{PermissionsExt as _, symlink},
            net::UnixListener,
        },
        path::PathBuf,
        process::id,
    };

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("xpu-top-trust-{}-{name}", id()));
            fs::create_dir(&path).unwrap();
            let new = Self(path);
            new.mode(0o700);
            new
        }

        fn mode(&self, mode: u32) {
            fs::set_permissions(&self.0, fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_socket_is_trusted_if_only_this_user_could_create_it() {
        let (folder, user) = (Folder::new("socket"), user_id());
        let path = folder.0.join("s");
        let asked = |path: &Path| is_trusted_socket(path, user);
        assert_eq!(asked(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&path, "").unwrap();
        assert!(!asked(&path).unwrap(), "a file");
        fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(asked(&path).unwrap() && connect(&path).is_ok());
        for (mode, trusted) in [(0o755, true), (0o770, false), (0o702, false), (0o1777, false), (0o700, true)]
        {
            folder.mode(mode);
            assert_eq!(asked(&path).unwrap(), trusted, "{mode:o}");
            let refused = connect(&path).err().map(|error| error.kind());
            assert_eq!(refused, (!trusted).then_some(io::ErrorKind::PermissionDenied), "{mode:o}");
        }
        let link = folder.0.join("link");
        symlink(&path, &link).unwrap();
        assert!(!asked(&link).unwrap(), "a link to a good socket");
        let detour = folder.0.join("detour");
        symlink(&folder.0, &detour).unwrap();
        assert!(!asked(&detour.join("s")).unwrap(), "a good socket in a linked folder");
        assert!(!asked(Path::new("s")).unwrap(), "a name without a folder");
    }

    #[test]
    fn files_of_other_users_are_not_trusted_and_files_of_root_are() {
        let folder = Folder::new("owner");
        let path = folder.0.join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let stranger = user_id() + 1;
        assert_eq!(is_trusted_socket(&path, stranger).unwrap(), user_id() == 0);
        if user_id() == 0 {
            std::os::unix::fs::chown(&path, Some(stranger), None).unwrap();
            assert!(!is_trusted_socket(&path, 0).unwrap(), "a stranger's socket in a good folder");
            assert!(is_trusted_socket(&path, stranger).unwrap(), "one's own in root's");
            std::os::unix::fs::chown(&folder.0, Some(stranger), None).unwrap();
            assert!(!is_trusted_socket(&path, stranger + 1).unwrap());
        }
    }

    #[test]
    fn the_kernel_identifies_the_peer() {
        let (one, other) = UnixStream::pair().unwrap();
        assert_eq!(peer_user(one.as_fd()).unwrap(), user_id());
        drop(other);
        assert_eq!(peer_user(one.as_fd()).unwrap(), user_id(), "also when it has gone");
        assert!(peer_user(fs::File::open("/dev/null").unwrap().as_fd()).is_err());
    }
}
