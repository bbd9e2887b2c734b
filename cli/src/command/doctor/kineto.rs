//! The daemon that PyTorch's profiler (Kineto) polls for instructions on this host: a collector, dynolog, or
//! none.

use std::{
    env, fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
};

use xpu_wire::endpoint::{BasePort, RuntimeDir};

use super::check::Check;

/// Kineto's abstract name for its daemon, as `/proc/net/unix` shows it: the closing NUL is part of the name.
const ABSTRACT: &str = "@dynolog@";

/// The name of the daemon's socket in a folder, and the variable that names the folder.
const IN_FOLDER: &str = "dynolog";
const FOLDER: &str = "KINETO_IPC_SOCKET_DIR";

/// The variable that turns the collector's Kineto daemon off, or names another abstract socket.
const SOCKET: &str = "XPU_TOP_KINETO_SOCKET";

/// Longest folder in which Kineto's clients can create sockets.
const LONGEST_FOLDER: usize = 53;

/// The collector's program, as the kernel names its processes.
const COLLECTOR: &str = "xpu-collector";

/// The daemons that another one leaves without ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// None: a collector has its own folder too.
    Served,
    NotServed,
}

pub(super) fn check(base: BasePort) -> Check {
    let own = RuntimeDir::locate().kineto(base);
    let others = if own.as_os_str().len() <= LONGEST_FOLDER { Others::Served } else { Others::NotServed };
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    match (set(SOCKET), set(FOLDER)) {
        (Some(off), _) if off == "off" => {
            Check::ok("kineto", format!("{SOCKET}=off: collectors leave PyTorch's profiler to others"))
        }
        _ if let Some(squatted) = squatted(&own, others) => squatted,
        (Some(name), _) => of(&format!("@{name}@"), &format!("@{name}"), others),
        (None, Some(folder)) => {
            let path = format!("{folder}/{IN_FOLDER}");
            of(&path, &path, Others::NotServed)
        }
        (None, None) => of(ABSTRACT, ABSTRACT.trim_end_matches('@'), others),
    }
}

/// What is wrong if another process has the name in the collector's own folder.
fn squatted(own: &Path, others: Others) -> Option<Check> {
    let path = own.join(IN_FOLDER);
    let path = path.to_str().filter(|_| others == Others::Served)?;
    Some(of(path, path, Others::NotServed)).filter(|check| check.remedy.is_some())
}

/// `listed`: the name as the kernel lists it. `shown`: the name for people.
fn of(listed: &str, shown: &str, others: Others) -> Check {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let inodes = inodes(&sockets, listed);
    if inodes.is_empty() || !is_reached(listed) {
        return Check::ok(
            "kineto",
            format!("{shown} is free: a collector takes it while PyTorch in a rank of its own asks there"),
        );
    }
    let mut holders = holders(&inodes);
    // The list still has a collector for a moment after another daemon has removed its file.
    holders.sort_by_key(|(_, name)| name == COLLECTOR);
    match holders.first() {
        Some((pid, name)) if name == COLLECTOR => {
            // Only this name can be taken once.
            let until = if listed.starts_with('@') {
                ", until no rank of its own asks there: a dynolog that starts before then serves no program"
            } else {
                ""
            };
            Check::ok("kineto", format!("process {pid} ({name}) serves PyTorch's profiler at {shown}{until}"))
        }
        found => {
            let who = found.map_or_else(
                || "a process of another user".to_owned(),
                |(pid, name)| format!("process {pid} ({name})"),
            );
            if others == Others::Served {
                return Check::ok(
                    "kineto",
                    format!(
                        "{who} has {shown}, and so the programs that were started with KINETO_USE_DAEMON=1 already set; the collector serves all others of `xpu-top run` in a folder of its own"
                    ),
                );
            }
            Check::warn(
                "kineto",
                format!("{who} has {shown}: `xpu-top kineto` reaches no rank here"),
                "trace with that daemon (`dyno gputrace`), or end it: a collector takes the name within ten seconds",
            )
        }
    }
}

/// A socket file that no process has open is no daemon. An abstract name has no file.
fn is_reached(name: &str) -> bool {
    name.starts_with('@') || UnixDatagram::unbound().is_ok_and(|socket| socket.connect(name).is_ok())
}

/// Inodes of the sockets with this name in the kernel's list: the seventh field is the inode, the last is the
/// name.
fn inodes(sockets: &str, name: &str) -> Vec<String> {
    let of = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let inode = fields.nth(6)?;
        // A closing NUL is listed as `@`.
        (fields.next()?.trim_end_matches('@') == name.trim_end_matches('@'))
            .then(|| format!("socket:[{inode}]"))
    };
    sockets.lines().filter_map(of).collect()
}

/// The processes that have one of these sockets, as far as this user may see them, and their programs.
fn holders(inodes: &[String]) -> Vec<(u32, String)> {
    let has = |process: &Path| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let mut to = open.filter_map(|open| fs::read_link(open.path()).ok());
        to.any(|to| inodes.iter().any(|one| to == Path::new(one)))
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes =
        processes.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    let holders = processes.filter(|(_, process): &(u32, _)| has(process));
    let program =
        |process: PathBuf| fs::read_to_string(process.join("comm")).unwrap_or_default().trim().to_owned();
    holders.map(|(pid, process)| (pid, program(process))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_name_is_found_in_the_kernels_list() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(IN_FOLDER);
        let shown = path.to_str().unwrap();
        assert!(of(shown, shown, Others::NotServed).found.contains("is free"));
        let daemon = UnixDatagram::bind(&path).unwrap();
        let check = of(shown, shown, Others::NotServed);
        assert!(check.found.starts_with(&format!("process {} (", std::process::id())), "{check:?}");
        assert!(check.remedy.is_some_and(|remedy| remedy.contains("dyno gputrace")));
        let check = of(shown, shown, Others::Served);
        assert!(check.remedy.is_none() && check.found.contains("a folder of its own"), "{check:?}");
        drop(daemon);
        assert!(of(shown, shown, Others::NotServed).found.contains("is free"), "a file that was left behind");
    }

    #[test]
    fn names_are_listed_with_their_closing_nul() {
        let list = "Num       RefCount Protocol Flags    Type St Inode Path
00000000: 00000002 00000000 00000000 0002 01 51234 @dynolog@
00000000: 00000002 00000000 00000000 0002 01 51235
00000000: 00000002 00000000 00000000 0002 01 51236 @dynologs@
00000000: 00000002 00000000 00000000 0002 01 51237 /run/k/dynolog@";
        assert_eq!(inodes(list, ABSTRACT), ["socket:[51234]"]);
        assert_eq!(inodes(list, "/run/k/dynolog"), ["socket:[51237]"]);
    }
}
