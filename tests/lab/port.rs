//! Free ports.

use std::net::{Ipv4Addr, TcpListener};

/// The first of three free ports in a row. Another process may take them before the caller does, so the
/// search starts where few programs look.
///
/// # Panics
/// If there are no three free ports in a row.
pub fn free_base() -> u16 {
    let seed = std::process::id() as u16;
    let free =
        |base: &u16| (*base..base + 3).all(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok());
    (0..500)
        .map(|n: u16| 20_000 + (seed.wrapping_mul(37).wrapping_add(n * 3)) % 8_000)
        .find(free)
        .expect("three free ports")
}
