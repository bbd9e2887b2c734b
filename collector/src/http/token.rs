//! The bearer token: derived from the key, or read from a file.

use std::{
    fmt, fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use axum::http::{HeaderMap, header};
use xpu_net::key::Key;

/// The hash's context: another purpose gives another hash.
const PURPOSE: &str = "xpu-top 2026-11-22 bearer token of HTTP";

/// Shortest and longest token in a file.
const SHORTEST: usize = 16;
const LONGEST: usize = 256;

/// The token that requests must carry. It is kept as a hash, so that a comparison takes the same time
/// wherever two texts differ.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(blake3::Hash);

impl Token {
    /// The token derived from a key, as text. The key cannot be derived from it.
    pub fn text_of(key: &Key) -> String {
        blake3::Hash::from_bytes(blake3::derive_key(PURPOSE, &key.secret)).to_hex().to_string()
    }

    pub fn of(key: &Key) -> Self {
        Self::from_text(&Self::text_of(key))
    }

    fn from_text(text: &str) -> Self {
        Self(blake3::hash(text.as_bytes()))
    }

    /// Reads a token from a file that only its owner can read.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let at = |error| TokenError::Unreadable { path: path.to_owned(), error };
        // Checked before it is opened: opening a pipe would wait for its other end.
        let found = fs::metadata(path).map_err(at)?;
        if found.mode() & 0o077 != 0 || !found.is_file() {
            return Err(TokenError::Open { path: path.to_owned() });
        }
        let mut text = String::new();
        fs::File::open(path).map_err(at)?.take(1024).read_to_string(&mut text).map_err(at)?;
        let text = text.trim();
        if !(SHORTEST..=LONGEST).contains(&text.len()) || !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err(TokenError::Malformed { path: path.to_owned() });
        }
        Ok(Self::from_text(text))
    }

    /// Whether a request carries this token.
    pub(super) fn is_shown(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let shown = shown.and_then(|value| value.split_once(' '));
        let shown = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        // `blake3::Hash` compares in constant time.
        shown.is_some_and(|(_, text)| Self::from_text(text.trim()).0 == self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("cannot read the token {path}: {error}; check --token-file", path = path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("others can read the token {path}, or it is not a file; run `chmod 600 {path}`", path = path.display())]
    Open { path: PathBuf },
    #[error(
        "{path} holds no token: one line of 16 to 256 letters without blanks; make one with `openssl rand -hex 32`",
        path = path.display()
    )]
    Malformed { path: PathBuf },
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use axum::http::HeaderValue;

    use super::*;

    fn shown(token: &Token, value: &str) -> bool {
        let value = HeaderValue::from_str(value).unwrap();
        token.is_shown(&[(header::AUTHORIZATION, value)].into_iter().collect())
    }

    #[test]
    fn only_the_whole_token_of_this_key_is_accepted() {
        let key = Key { public: [1; 32], secret: [2; 32] };
        let (token, text) = (Token::of(&key), Token::text_of(&key));
        assert!(shown(&token, &format!("Bearer {text}")) && shown(&token, &format!("bearer  {text} ")));
        for wrong in [String::new(), text.clone(), format!("Basic {text}"), format!("Bearer {}", &text[1..])]
        {
            assert!(!shown(&token, &wrong), "{wrong}");
        }
        let other = Token::text_of(&Key { public: [1; 32], secret: [3; 32] });
        assert!(!shown(&token, &format!("Bearer {other}")));
        assert!(!token.is_shown(&HeaderMap::new()));
        assert!(!text.contains("0202") && format!("{token:?}") == "Token(..)");
    }

    #[test]
    fn a_file_others_can_read_or_without_a_token_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let said = || Token::read(&path).unwrap_err().to_string();
        assert!(said().contains("--token-file"));
        fs::write(&path, "0123456789abcdef\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(said().contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(shown(&Token::read(&path).unwrap(), "Bearer 0123456789abcdef"));
        for text in ["short", "two words of which is none a token"] {
            fs::write(&path, text).unwrap();
            assert!(said().contains("openssl"), "{text}");
        }
    }
}
