//! One name at which Kineto's clients are served: the socket while it is bound, and attempts to bind it.

use std::{
    fs::{self, DirBuilder},
    io,
    os::{
        fd::RawFd,
        unix::{
            ffi::OsStrExt as _,
            fs::{DirBuilderExt as _, FileTypeExt as _},
            net::UnixDatagram,
        },
    },
    path::Path,
    time::Duration,
};

use xpu_wire::unit::Moment;

use super::{
    name::{CLIENT, KinetoName},
    socket::Socket,
};

/// Interval of attempts to bind a name that another daemon has.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Interval at which files of ended clients are removed.
const SWEEP: Duration = Duration::from_mins(1);

/// Largest number of datagrams taken in a second. A thousand ranks send two hundred a second.
const A_SECOND: u32 = 5000;
const SECOND: Duration = Duration::from_secs(1);

/// What became of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Unchanged,
    /// Another daemon took the name. From now on, clients poll that one.
    Lost,
    /// Another daemon has the name. Reported once.
    Taken,
}

#[derive(Debug)]
pub(super) struct Listener {
    pub name: KinetoName,
    pub socket: Option<Socket>,
    tried: Option<Moment>,
    swept: Moment,
    /// The begin of the current second, and the datagrams taken in it.
    taken: (Moment, u32),
}

impl Listener {
    pub(super) fn new(name: KinetoName, now: Moment) -> Self {
        Self { name, socket: None, tried: None, swept: now, taken: (now, 0) }
    }

    /// A listener in a folder of this collector's own, which is created. `None` if clients could not use it.
    pub(super) fn in_own_folder(folder: &Path, now: Moment) -> Option<Self> {
        let name = KinetoName::Folder(folder.as_os_str().to_owned());
        if name.is_too_long_for_clients() {
            tracing::info!(
                "{} is too long for Kineto's sockets: jobs of `xpu-top run` use dynolog's name",
                name.shown()
            );
            return None;
        }
        match DirBuilder::new().mode(0o700).recursive(true).create(folder) {
            Ok(()) => Some(Self::new(name, now)),
            Err(error) => {
                tracing::warn!("cannot create {}: {error}", folder.display());
                None
            }
        }
    }

    /// Binds the name if it is free.
    pub(super) fn bind(&mut self, now: Moment) -> Fate {
        let mut fate = Fate::Unchanged;
        if self.socket.as_ref().is_some_and(|socket| !socket.has_its_name()) {
            tracing::warn!("{} was removed or taken by another daemon", self.name.shown());
            (self.socket, self.tried) = (None, None);
            fate = Fate::Lost;
        }
        let is_due = self.tried.is_none_or(|tried| now.since(tried) >= TRY_AGAIN);
        if self.socket.is_some() || self.name == KinetoName::Off || !is_due {
            return fate;
        }
        let is_first = self.tried.replace(now).is_none();
        let name = self.name.shown();
        match Socket::bind(&self.name) {
            Ok(socket) => {
                tracing::info!("Kineto is served at {name}");
                if self.name.is_too_long_for_clients() {
                    tracing::warn!(
                        "{name} is too long: Kineto's clients create sockets in that folder, so its path can have at most 53 characters"
                    );
                }
                self.socket = Some(socket);
            }
            Err(error) if is_first && error.kind() == io::ErrorKind::AddrInUse && fate == Fate::Unchanged => {
                fate = Fate::Taken;
            }
            Err(error) if is_first && error.kind() != io::ErrorKind::AddrInUse => {
                tracing::warn!("Kineto cannot be served at {name}: {error}");
            }
            Err(_) => {}
        }
        fate
    }

    /// Whether another daemon had the name at the last attempt.
    pub(super) fn is_of_another(&self) -> bool {
        self.socket.is_none() && self.tried.is_some()
    }

    /// Gives the name up. Returns whether it was bound.
    pub(super) fn release(&mut self) -> bool {
        self.tried = None;
        self.socket.take().is_some()
    }

    /// The descriptor to poll. Datagrams beyond a second's limit stay in the socket until the next second.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        self.socket.as_ref().filter(|_| self.taken.1 < A_SECOND).map(Socket::descriptor)
    }

    /// Whether a datagram may be taken now: `false` beyond a second's limit.
    pub(super) fn may_take(&mut self, now: Moment) -> bool {
        if now.since(self.taken.0) >= SECOND || now < self.taken.0 {
            self.taken = (now, 0);
        }
        self.taken.1 < A_SECOND
    }

    /// Counts a taken datagram.
    pub(super) fn count_taken(&mut self) {
        self.taken.1 += 1;
    }

    /// Removes the files that ended clients left in the folder: Kineto never removes its own.
    pub(super) fn sweep(&mut self, now: Moment) {
        let KinetoName::Folder(folder) = &self.name else { return };
        if now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        for file in fs::read_dir(folder).into_iter().flatten().flatten() {
            let is_socket = file.file_type().is_ok_and(|kind| kind.is_socket());
            if is_socket && file.file_name().as_bytes().starts_with(CLIENT) && is_left(&file.path()) {
                let _ = fs::remove_file(file.path());
            }
        }
    }
}

/// Whether no process has this socket open.
fn is_left(path: &Path) -> bool {
    let connected = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn files_of_ended_clients_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut own = Listener::in_own_folder(folder.path(), at(0)).unwrap();
        assert_eq!(own.bind(at(0)), Fate::Unchanged);
        let living = UnixDatagram::bind(path("dynoconfigclient-living")).unwrap();
        drop(UnixDatagram::bind(path("dynoconfigclient-ended")).unwrap());
        drop(UnixDatagram::bind(path("other")).unwrap());
        fs::write(path("dynoconfigclient-text"), "").unwrap();
        let left = || {
            let mut names: Vec<_> =
                fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
            names.sort();
            names
        };
        own.sweep(at(59));
        assert_eq!(left().len(), 5);
        own.sweep(at(60));
        assert_eq!(left(), ["dynoconfigclient-living", "dynoconfigclient-text", "dynolog", "other"]);
        drop(living);
        drop(own);
        assert!(!path("dynolog").exists());
    }

    #[test]
    fn a_folder_whose_path_is_too_long_for_clients_is_not_served() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Listener::in_own_folder(&folder.path().join("f".repeat(53)), at(0)).is_none());
    }

    #[test]
    fn datagrams_of_a_second_are_limited() {
        let mut one = Listener::new(KinetoName::Off, at(0));
        for _ in 0..5000 {
            assert!(one.may_take(at(1)));
            one.count_taken();
        }
        assert!(!one.may_take(at(1)));
        assert!(one.may_take(at(2)));
    }
}
