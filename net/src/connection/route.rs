//! The addresses at which a host is reached, directly or through a tunnel.

/// ZeroMQ addresses at which a host is reached from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub(super) control: String,
    pub(super) data: String,
    pub(super) is_ipv6: bool,
}
