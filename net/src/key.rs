//! The key of a user's collectors. Only users who can read the file can connect and watch.
//!
//! The file holds one CURVE key pair in Z85: the public key's forty characters, then the secret key's. In
//! ZeroMQ's CURVE, the server and each client need a pair. Here they all belong to the same user, so one pair
//! serves both roles. CURVE never sends the server's public key, so a client without the file cannot even
//! begin to connect.

use std::{
    env, fmt, fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use xpu_wire::endpoint::variable;

/// Forty characters of Z85 are 32 bytes; the file holds two such keys.
const HALF: usize = 40;

/// A CURVE key pair. Its secret is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    pub public: [u8; 32],
    pub secret: [u8; 32],
}

impl Key {
    pub fn generate() -> Result<Self, KeyError> {
        let pair = zmq::CurveKeyPair::new().map_err(KeyError::Library)?;
        Ok(Self { public: pair.public_key, secret: pair.secret_key })
    }

    /// The path of this user's key: `XPU_TOP_KEY_FILE`, else `~/.config/xpu-top/key`.
    pub fn path() -> Option<PathBuf> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        set(variable::KEY_FILE).or_else(|| {
            let config = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
            Some(config.join("xpu-top").join("key"))
        })
    }

    /// The key at `path`. `Ok(None)` if there is no such file and none was named.
    pub fn find(named: Option<&Path>) -> Result<Option<Self>, KeyError> {
        let asked_for =
            named.is_some() || env::var_os(variable::KEY_FILE).is_some_and(|value| !value.is_empty());
        let Some(path) = named.map(Path::to_owned).or_else(Self::path) else { return Ok(None) };
        match Self::read(&path) {
            Err(KeyError::Unreadable { error, .. })
                if error.kind() == io::ErrorKind::NotFound && !asked_for =>
            {
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let at = |error| KeyError::Unreadable { path: path.to_owned(), error };
        // Checked before it is opened: opening a pipe would wait for its other end.
        if !fs::metadata(path).map_err(at)?.is_file() {
            return Err(KeyError::NotAFile { path: path.to_owned() });
        }
        let file = fs::File::open(path).map_err(at)?;
        let found = file.metadata().map_err(at)?;
        if found.mode() & 0o077 != 0 {
            return Err(KeyError::Open { path: path.to_owned() });
        }
        let mut text = String::new();
        file.take(1024).read_to_string(&mut text).map_err(at)?;
        Self::from_text(text.trim()).ok_or_else(|| KeyError::Malformed { path: path.to_owned() })
    }

    fn from_text(text: &str) -> Option<Self> {
        let (public, secret) = text.split_at_checked(HALF)?;
        let decode = |half| zmq::z85_decode(half).ok()?.try_into().ok();
        Some(Self { public: decode(public)?, secret: decode(secret)? })
    }

    fn to_text(&self) -> Option<String> {
        Some(zmq::z85_encode(&self.public).ok()? + &zmq::z85_encode(&self.secret).ok()?)
    }

    /// Writes the key to a new file that only its owner may read, in directories created as needed. Never
    /// overwrites a key.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        let at = |error| KeyError::Unwritable { path: path.to_owned(), error };
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            fs::DirBuilder::new().mode(0o700).recursive(true).create(dir).map_err(at)?;
        }
        let text = self.to_text().ok_or_else(|| at(io::ErrorKind::InvalidData.into()))?;
        // The key is written to a temporary file and linked into place: all ranks of a job may create it at
        // the same time in a shared home folder, and no rank may read a half-written file of another.
        let aside =
            path.with_extension(format!("{}-{}", xpu_wire::endpoint::host_name(), std::process::id()));
        let _ = fs::remove_file(&aside);
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside).map_err(at)?;
        let written = writeln!(file, "{text}").and_then(|()| file.sync_all());
        let placed = written.and_then(|()| fs::hard_link(&aside, path));
        let _ = fs::remove_file(&aside);
        placed.map_err(at)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot read the key {path}: {error}; check the path in XPU_TOP_KEY_FILE, or make a key with `xpu-top keygen`", path = path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{path} is not a regular file; name the key's file, or make one with `xpu-top keygen -o FILE`", path = path.display())]
    NotAFile { path: PathBuf },
    #[error("others can read the key {path}; run `chmod 600 {path}`", path = path.display())]
    Open { path: PathBuf },
    #[error("{path} holds no key (80 characters of Z85); make one with `xpu-top keygen -o FILE`", path = path.display())]
    Malformed { path: PathBuf },
    #[error("cannot write the key {path}: {error}; an existing key is never overwritten, remove it first", path = path.display())]
    Unwritable { path: PathBuf, error: io::Error },
    #[error("libzmq cannot make a key: {0}; this build has no CURVE")]
    Library(zmq::Error),
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = env::temp_dir().join(format!("xpu-top-key-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn a_key_survives_its_file() {
        let dir = scratch("roundtrip");
        let path = dir.join("deep").join("key");
        let key = Key::generate().unwrap();
        key.write_new(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Key::read(&path).unwrap(), key);
        assert!(matches!(Key::generate().unwrap().write_new(&path), Err(KeyError::Unwritable { .. })));
        assert_eq!(Key::read(&path).unwrap(), key);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn every_bad_key_file_says_what_to_do() {
        let dir = scratch("bad");
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("key");
        let message = |path: &Path| Key::read(path).unwrap_err().to_string();
        assert!(message(&path).contains("xpu-top keygen"));
        fs::write(&path, "short").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(message(&path).contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(message(&path).contains("holds no key"));
        assert!(message(&dir).contains("is not a regular file"), "{}", message(&dir));
        fs::write(&path, [0xff; 80]).unwrap();
        assert!(message(&path).contains("cannot read the key"));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(format!("{:?}", Key::generate().unwrap()), "Key(..)");
    }
}
