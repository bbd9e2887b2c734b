//! The name that Kineto's clients poll, and the clients that expect answers from it.
//!
//! A client ends its process when an answer comes from a name that it does not expect. So only a client that
//! spells the name's folder in the same way gets an answer.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
};

use xpu_wire::endpoint::RuntimeDir;

/// The daemon's name in dynolog and Kineto, and the prefix of clients' names.
const DAEMON: &[u8] = b"dynolog";
pub(super) const CLIENT: &[u8] = b"dynoconfigclient";

/// Kineto's longest name, less the client's part: a slash, the word, and a UUID.
const LONGEST_FOLDER: usize = 106 - (1 + CLIENT.len() + 36);

/// The name that clients poll: an abstract name, which has no file, or a name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KinetoName {
    Abstract(Vec<u8>),
    Folder(OsString),
    /// No socket.
    Off,
}

impl KinetoName {
    /// The variable with the name to use instead of dynolog's, or `off` for no socket.
    pub const VARIABLE: &str = "XPU_TOP_KINETO_SOCKET";
    /// Kineto's variables: it polls a daemon at all; the folder of that daemon.
    pub(super) const USE_DAEMON: &str = "KINETO_USE_DAEMON";
    pub(super) const FOLDER: &str = "KINETO_IPC_SOCKET_DIR";

    /// The name that the environment gives. A folder of a collector, as in the environment of its job, is not
    /// shared with another collector.
    pub fn of(set: impl Fn(&str) -> Option<OsString>, runtime: &RuntimeDir) -> Self {
        let set = |name| set(name).filter(|value| !value.is_empty());
        let set = |name| set(name).filter(|value| name == Self::VARIABLE || !runtime.is_for_kineto(value));
        match set(Self::VARIABLE) {
            Some(off) if off == "off" => Self::Off,
            Some(name) => Self::Abstract(name.as_bytes().to_vec()),
            None => set(Self::FOLDER).map_or_else(|| Self::Abstract(DAEMON.to_vec()), Self::Folder),
        }
    }

    /// The name in messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Abstract(name) => format!("@{}", String::from_utf8_lossy(name)),
            Self::Folder(folder) => Self::path(folder).display().to_string(),
            Self::Off => "nowhere".to_owned(),
        }
    }

    /// Whether clients' names in that folder are too long: they would not poll at all.
    pub(super) fn is_too_long_for_clients(&self) -> bool {
        matches!(self, Self::Folder(folder) if folder.len() > LONGEST_FOLDER)
    }

    pub(super) fn folder(&self) -> Option<&str> {
        match self {
            Self::Folder(folder) => folder.to_str(),
            Self::Abstract(_) | Self::Off => None,
        }
    }

    pub(super) fn path(folder: &OsString) -> PathBuf {
        let mut path = folder.clone();
        path.push("/");
        path.push(OsStr::from_bytes(DAEMON));
        path.into()
    }

    /// Why a client of this name would reject an answer from our name; `None` if it would accept it.
    pub(super) fn why_unexpected(&self, peer: &Peer) -> Option<String> {
        if self.is_expected_by(peer) {
            return None;
        }
        let folder = peer.0.iter().rposition(|&letter| letter == b'/').map(|end| &peer.0[..end]);
        let folder = folder.map(|folder| String::from_utf8_lossy(folder).into_owned());
        let why = self.why_elsewhere(folder.as_deref());
        why.or_else(|| Some("its Kineto gives no name to which an answer could go".to_owned()))
    }

    /// Why a process with this value of Kineto's variable gets no answers from our name; `None` if it gets
    /// them.
    pub(super) fn why_elsewhere(&self, theirs: Option<&str>) -> Option<String> {
        let ours = match self {
            Self::Folder(folder) => Some(folder.to_string_lossy()),
            Self::Abstract(_) => None,
            Self::Off => return None,
        };
        let said = |folder: Option<&str>| {
            folder
                .map_or_else(|| format!("no {}", Self::FOLDER), |folder| format!("{}={folder}", Self::FOLDER))
        };
        (theirs != ours.as_deref()).then(|| {
            format!(
                "its process has {}, and its host's collector has {}: start both with the same spelling, because Kineto takes no other answer",
                said(theirs),
                said(ours.as_deref()),
            )
        })
    }

    /// Whether a process with this value of Kineto's variable may poll our name. It may spell our folder
    /// differently. `own` is the folder of the other listener, where it needs no shared name.
    pub(super) fn is_polled_with(&self, theirs: Option<&str>, own: Option<&str>) -> bool {
        match self {
            Self::Abstract(_) => theirs.is_none(),
            Self::Folder(_) => theirs.is_some() && theirs != own,
            Self::Off => false,
        }
    }

    /// Whether a client of this name polls our name. In a folder, its own name shows how it spells the
    /// folder.
    pub(super) fn is_expected_by(&self, peer: &Peer) -> bool {
        let begin = match self {
            Self::Abstract(_) => b"\0".to_vec(),
            Self::Folder(folder) => [folder.as_bytes(), b"/"].concat(),
            Self::Off => return false,
        };
        peer.0.strip_prefix(&begin[..]).is_some_and(|rest| rest.starts_with(CLIENT))
    }
}

/// A client's bound address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer(pub Vec<u8>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_sets_the_name_at_which_clients_ask() {
        let of = |pairs: &[(&str, &str)]| {
            let set = |name: &str| {
                pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            };
            KinetoName::of(set, &RuntimeDir::at("/run/xpu-top"))
        };
        assert_eq!(of(&[]), KinetoName::Abstract(b"dynolog".to_vec()));
        assert_eq!(of(&[(KinetoName::FOLDER, "/run/k")]), KinetoName::Folder("/run/k".into()));
        assert!(!KinetoName::Folder("f".repeat(53).into()).is_too_long_for_clients());
        assert!(KinetoName::Folder("f".repeat(54).into()).is_too_long_for_clients());
        assert_eq!(of(&[(KinetoName::FOLDER, "")]), KinetoName::Abstract(b"dynolog".to_vec()));
        assert_eq!(
            of(&[(KinetoName::FOLDER, "/run/xpu-top/kineto-7")]),
            KinetoName::Abstract(b"dynolog".to_vec()),
            "the folder of another collector"
        );
        assert_eq!(of(&[(KinetoName::VARIABLE, "off"), (KinetoName::FOLDER, "/run/k")]), KinetoName::Off);
    }
}
