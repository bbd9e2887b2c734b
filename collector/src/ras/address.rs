//! Finds where RAS of a job listens, and whether it must not be asked.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _},
};

use super::{Target, library::Version};
use crate::environment::Environment;

/// NCCL's default address.
const DEFAULT: &str = "localhost:28028";

/// The first version with a JSON form, and the versions that may crash when asked.
const JSON: Version = Version { major: 2, minor: 28, patch: 7 };
const CRASHES: std::ops::RangeInclusive<Version> =
    Version { major: 2, minor: 26, patch: 2 }..=Version { major: 2, minor: 26, patch: 5 };

/// An address in the format of `NCCL_RAS_ADDR`: `host:port`, `[address]:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RasAddress(String);

/// Why RAS is not asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotQueried {
    #[error("no process of the job can be read from here: start a collector in its container, as its user")]
    NoProcess,
    #[error("RAS is off: the job was started with NCCL_RAS_ENABLE={0}")]
    Off(String),
    #[error(
        "a rank on this host is creating a communicator, and RAS may crash when asked then (up to NCCL 2.29.7)"
    )]
    Creating,
    #[error("NCCL {0}: its RAS may crash when asked (2.26.2 to 2.26.5); use another version of NCCL")]
    Crashes(String),
    #[error(
        "NCCL {0}: its RAS does not support JSON, which NCCL 2.28.7 added; ask it with NCCL's own ncclras"
    )]
    NoJson(String),
}

impl NotQueried {
    pub(super) fn of_version(version: Version) -> Option<Self> {
        let text = version.to_string();
        if CRASHES.contains(&version) {
            Some(Self::Crashes(text))
        } else {
            (version < JSON).then_some(Self::NoJson(text))
        }
    }
}

impl RasAddress {
    /// The address, from the environment of the job's processes here, which share one address.
    pub(super) fn of(target: &Target) -> Result<Self, NotQueried> {
        let mut environments = target.pids.iter().filter_map(|&pid| Environment::of(pid, &target.job));
        let environment = environments.next().ok_or(NotQueried::NoProcess)?;
        if let Some(set) = environment.value("NCCL_RAS_ENABLE").filter(|set| set.trim() == "0") {
            return Err(NotQueried::Off(set));
        }
        let set = environment.value("NCCL_RAS_ADDR").filter(|set| !set.is_empty());
        Ok(Self(set.unwrap_or_else(|| DEFAULT.to_owned())))
    }

    /// The addresses to connect to. For a listener on all addresses, this is the loopback address.
    pub(super) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let local = |mut address: SocketAddr| {
            match address.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
                IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
                _ => {}
            }
            address
        };
        Ok(self.0.to_socket_addrs()?.map(local).collect())
    }
}

impl From<&str> for RasAddress {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for RasAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&xpu_wire::text::clean(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_crash_or_have_no_json_are_not_asked() {
        let of = |(major, minor, patch)| Version { major, minor, patch };
        let said = |version| NotQueried::of_version(version).map(|why| why.to_string()).unwrap_or_default();
        for patch in 2..=5 {
            assert!(said(of((2, 26, patch))).contains("may crash when asked"), "{patch}");
        }
        for version in [(2, 23, 4), (2, 26, 1), (2, 26, 6), (2, 27, 7), (2, 28, 3)].map(of) {
            assert!(said(version).contains("does not support JSON"), "{version:?}");
        }
        for version in [(2, 28, 7), (2, 28, 9), (2, 29, 2), (3, 0, 0)].map(of) {
            assert_eq!(said(version), "");
        }
    }

    #[test]
    fn a_listener_on_all_addresses_is_asked_at_this_host() {
        let of = |text: &str| RasAddress::from(text).resolve().unwrap()[0].to_string();
        assert_eq!(of("0.0.0.0:7"), "127.0.0.1:7");
        assert_eq!(of("[::]:7"), "[::1]:7");
        assert_eq!(of("127.0.0.9:7"), "127.0.0.9:7");
        RasAddress::from("eth0").resolve().unwrap_err();
    }
}
