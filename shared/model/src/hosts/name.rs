//! Turns one name, with its ranges and its port, into its endpoints.

use std::net::Ipv6Addr;

use xpu_wire::endpoint::{BasePort, Endpoint};

use super::range::{self, RangeError};

/// Longest name of a host (RFC 1035).
const LONGEST_NAME: usize = 253;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NameError {
    #[error("a host is missing between two commas; write a,b")]
    Empty,
    #[error("`{0}` is not a port; write host:PORT with the collector's base port, 1 to 65533")]
    Port(String),
    #[error("`{0}` has more than one colon; write an IPv6 address in brackets, [::1] or [::1]:18889")]
    Colons(String),
    #[error("`{0}` is not an IPv6 address; write [::1] or [::1]:18889")]
    Ipv6(String),
    #[error("`{0}` is not a host name; write letters, digits, `.`, `-` and `_` only")]
    Letters(String),
    #[error(transparent)]
    Range(#[from] RangeError),
}

/// The parts between commas, except commas inside brackets.
pub(super) fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    list.split(move |c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth <= 0
    })
}

/// The endpoints of `name`, at most `limit`.
pub(super) fn expand(name: &str, base: BasePort, limit: usize) -> Result<Vec<Endpoint>, NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if let Some((address, rest)) = ipv6(name) {
        let number = address.split('%').next().unwrap_or_default();
        if number.parse::<Ipv6Addr>().is_err() {
            return Err(NameError::Ipv6(name.to_owned()));
        }
        let base = match rest.strip_prefix(':') {
            Some(text) => port(text)?,
            None if rest.is_empty() => base,
            None => return Err(NameError::Ipv6(name.to_owned())),
        };
        return match limit {
            0 => Err(RangeError::TooMany.into()),
            _ => Ok(vec![Endpoint { host: format!("[{address}]"), base, ssh: None }]),
        };
    }
    if name.matches(':').count() > 1 {
        return Err(NameError::Colons(name.to_owned()));
    }
    let (pattern, base) = match name.split_once(':') {
        Some((pattern, text)) => (pattern, port(text)?),
        None => (name, base),
    };
    let names = range::expand(pattern, limit)?;
    match names.iter().find(|name| !is_name(name)) {
        Some(_) => Err(NameError::Letters(pattern.escape_default().to_string())),
        None => Ok(names.into_iter().map(|host| Endpoint { host, base, ssh: None }).collect()),
    }
}

/// `[address]rest`, if the brackets contain an address and not a range: an address has a colon.
fn ipv6(name: &str) -> Option<(&str, &str)> {
    let (inside, rest) = name.strip_prefix('[')?.split_once(']')?;
    inside.contains(':').then_some((inside, rest))
}

fn port(text: &str) -> Result<BasePort, NameError> {
    text.parse()
        .ok()
        .and_then(BasePort::new)
        .ok_or_else(|| NameError::Port(text.escape_default().to_string()))
}

fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(allowed) && !name.starts_with(['-', '.'])
}
