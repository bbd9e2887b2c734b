//! The user's permissions on this machine: reading stacks, listening, keeping a key, reading the time.

use std::{
    fs,
    io::{self, Write as _},
    mem::zeroed,
    path::Path,
};

use xpu_net::key::Key;
use xpu_wire::endpoint::{BasePort, Located, RuntimeDir, user_id};

use super::{
    check::Check,
    kineto,
    ports::{self, Holder},
};

/// Smallest clock error that is reported, in microseconds: steps are tens of milliseconds.
const FAR_OFF: i64 = 100_000;

pub(super) fn checks(base: BasePort, holder: &Holder, key_file: Option<&Path>) -> Vec<Check> {
    let ports = ports::check(base, holder);
    vec![key(key_file), runtime_dir(), ports, kineto::check(base), ptrace(), memory(), kills(), clock()]
}

fn key(named: Option<&Path>) -> Check {
    let path = named.map(Path::to_owned).or_else(Key::path);
    let place = path
        .map_or_else(|| "nowhere: there is no home directory".to_owned(), |path| path.display().to_string());
    match Key::find(named) {
        Ok(Some(_)) => Check::ok("key", format!("{place}, private to you")),
        Ok(None) => Check::warn(
            "key",
            format!("none yet at {place}"),
            "`xpu-top run` makes one; without a key, jobs are visible only on their own host",
        ),
        Err(error) => Check::fail("key", "it cannot be used", error.to_string()),
    }
}

fn runtime_dir() -> Check {
    let name = "runtime dir";
    let located = match RuntimeDir::claim() {
        Ok(located) => located,
        Err(error) => {
            return Check::fail(name, RuntimeDir::locate().path().display().to_string(), error.to_string());
        }
    };
    let path = located.dir.path();
    if let Err(error) = try_to_write(&path.join(".doctor")) {
        let remedy = "free space there, or set XPU_TOP_RUNTIME_DIR";
        return Check::fail(name, format!("{}: {error}", path.display()), remedy);
    }
    used(name, &located)
}

/// The directory in use, and why it is not the usual one.
fn used(name: &'static str, located: &Located) -> Check {
    let shown = located.dir.path().display().to_string();
    match located.why() {
        None => Check::ok(name, shown),
        Some(why) => Check::warn(
            name,
            format!("{shown}; {why}"),
            "all your commands on this host find this directory; ask root or the owner about the other directory",
        ),
    }
}

fn try_to_write(path: &Path) -> io::Result<()> {
    fs::File::create(path)?.write_all(b"x")?;
    fs::remove_file(path)
}

/// Whether a process may read another of the same user that is not its child.
fn ptrace() -> Check {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let scope: Option<u32> = scope.and_then(|text| text.trim().parse().ok());
    match scope {
        None | Some(0) => Check::ok("stacks", "processes of the same user may be read"),
        Some(_) if user_id() == 0 => Check::ok("stacks", "processes may be read: you are root"),
        Some(scope) => Check::warn(
            "stacks",
            format!("kernel.yama.ptrace_scope is {scope}: stacks of Python and native frames cannot be read"),
            "as root: sysctl kernel.yama.ptrace_scope=0; in a container: --cap-add SYS_PTRACE; the call that each rank is in is still shown, from its ledger page",
        ),
    }
}

/// Whether files in memory can be created, as for the ledger page.
fn memory() -> Check {
    // SAFETY: the name is NUL-terminated and 'static; the descriptor is this call's own.
    let made = unsafe {
        let file = libc::memfd_create(c"xpu-top-doctor".as_ptr(), libc::MFD_CLOEXEC);
        file >= 0 && libc::close(file) == 0
    };
    if made {
        Check::ok("ledger", "memory pages can outlive their process")
    } else {
        Check::fail(
            "ledger",
            "memfd_create is refused",
            "allow it in the container's seccomp profile: without it no rank can be watched",
        )
    }
}

/// How reliably OOM kills can be detected.
fn kills() -> Check {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let counts = groups.lines().any(|line| line.starts_with("0::") || line.contains(":memory:"));
    match (fs::File::open("/dev/kmsg").is_ok(), counts) {
        (true, _) => Check::ok("exits", "the kernel's log shows OOM kills"),
        (false, true) => Check::ok("exits", "control groups count OOM kills: likely, not certain"),
        (false, false) => Check::warn(
            "exits",
            "neither the kernel's log nor a control group can be read",
            "an OOM-killed rank is reported as killed; as root: sysctl kernel.dmesg_restrict=0",
        ),
    }
}

/// Whether NTP sets the clock. Findings compare hosts by common events and do not need synchronized clocks,
/// but the shown times do.
fn clock() -> Check {
    // SAFETY: an all-zero timex requests no change; the call writes only within it.
    let (state, state_of_clock) = unsafe {
        let mut state_of_clock: libc::timex = zeroed();
        (libc::adjtimex(&raw mut state_of_clock), state_of_clock)
    };
    let remedy =
        "start chrony or systemd-timesyncd; findings do not depend on it, times in logs and recordings do";
    if state < 0 {
        return Check::warn("clock", "the kernel does not report whether it is synchronized", remedy);
    }
    let error = i64::from(state_of_clock.maxerror as i32);
    if state_of_clock.status & libc::STA_UNSYNC != 0 {
        Check::warn("clock", "it is not synchronized (no NTP)", remedy)
    } else if error > FAR_OFF {
        Check::warn("clock", format!("it may be off by {} ms", error / 1000), remedy)
    } else {
        Check::ok("clock", format!("synchronized by NTP, at most {:.1} ms off", error as f64 / 1e3))
    }
}
