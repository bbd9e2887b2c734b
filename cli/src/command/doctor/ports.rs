//! Finds what listens on a collector's ports: nothing, a collector that this user's commands reach, another
//! collector of this user, or another user's program.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::Path,
};

use xpu_wire::endpoint::{self, BasePort, RuntimeDir, user_id};

use super::check::Check;

/// A listening socket's state in `/proc/net/tcp`.
const LISTENS: &str = "0A";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Nobody,
    /// The collector of this user's runtime directory.
    Ours,
    /// Another collector of this user, with a runtime directory of its own, such as that of a demo.
    Another {
        pid: u32,
    },
    /// These ports.
    Stranger(Vec<u16>),
}

pub(super) fn holder(base: BasePort) -> Holder {
    if RuntimeDir::locate().socket(base).is_ok_and(|socket| endpoint::connect(&socket).is_ok()) {
        return Holder::Ours;
    }
    let mut taken = all(base).to_vec();
    taken.retain(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err());
    match taken.iter().find_map(|&port| collector_on(port)) {
        _ if taken.is_empty() => Holder::Nobody,
        Some(pid) => Holder::Another { pid },
        None => Holder::Stranger(taken),
    }
}

pub(super) fn check(base: BasePort, holder: &Holder) -> Check {
    let list = |ports: &[u16]| ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let ports = list(&all(base));
    match holder {
        Holder::Nobody => {
            Check::ok("ports", format!("{ports} are free; `xpu-top run` starts a collector there"))
        }
        Holder::Ours => Check::ok("ports", format!("your collector listens on {ports}")),
        Holder::Another { pid } => Check::warn(
            "ports",
            format!("another collector of yours (process {pid}) listens on {ports}"),
            "it belongs to a demo, or has another runtime directory or key: end it before `xpu-top run`, or use another base port \
             (XPU_TOP_BASE_PORT=19889, or --base-port)",
        ),
        Holder::Stranger(taken) => Check::fail(
            "ports",
            format!("{} taken by another program or user", list(taken)),
            "choose another base port for the job and its viewers: XPU_TOP_BASE_PORT=19889, or --base-port",
        ),
    }
}

fn all(base: BasePort) -> [u16; 3] {
    [base.http(), base.data(), base.control()]
}

/// This user's collector process that listens on the port.
fn collector_on(port: u16) -> Option<u32> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let sockets: Vec<_> = tables
        .iter()
        .flat_map(|table| sockets(table, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find(|pid| {
        let process = Path::new("/proc").join(pid.to_string());
        let is_collector =
            fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim_end() == "xpu-collector");
        // Other users' open files cannot be read.
        is_collector
            && fs::read_dir(process.join("fd")).into_iter().flatten().flatten().any(|open| {
                fs::read_link(open.path()).is_ok_and(|to| sockets.iter().any(|one| to == Path::new(one)))
            })
    })
}

/// The sockets of this user that listen on a port, by their inodes.
fn sockets(table: &str, port: u16) -> impl Iterator<Item = &str> {
    let (port, user) = (format!(":{port:04X}"), user_id().to_string());
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, local, _, state, _, _, _, owner, _, inode, ..] = fields[..] else { return None };
        (state == LISTENS && local.ends_with(&port) && owner == user).then_some(inode)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_of_this_user_is_found_in_the_kernels_table() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        assert_eq!(sockets(&table, port).count(), 1);
        assert_eq!(collector_on(port), None, "this is no collector");
        drop(listener);
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        assert_eq!(sockets(&table, port).count(), 0);
    }
}
