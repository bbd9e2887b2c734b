//! Ranks that something else ends: SIGKILL, a broken pipe, the OOM killer.

use std::{fs, path::PathBuf};

use xpu_tests::{
    host::Host,
    program::until,
    skip::{Beyond, skipped_beyond_ci},
};

use crate::job::{BEGIN, Ended, Job, PLUGIN, died_by};

#[test]
fn a_rank_that_is_killed_silently_is_reported_as_killed() {
    let job = Job::new(&[], "next_line()");
    job.rank.signal("KILL");
    let (host, rank) = (job.host, job.rank);
    let ended = Ended::seen(&host, rank.end());
    assert_eq!(ended.finding["class"], "dead");
    assert!(ended.evidence().contains("ended without an orderly exit"), "{}", ended.evidence());
    assert_eq!(ended.exit["text"], "ended without a record: SIGKILL, or an unknown signal");
}

/// xpu-timer handles this signal; the hook leaves it alone.
#[test]
fn a_rank_ended_by_sigpipe_is_reported_with_that_signal() {
    let script = "import os, signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\nos.kill(os.getpid(), signal.SIGPIPE)";
    let mut job = Job::new(&[], script);
    job.rank.write_line("go");
    // The parent has not waited for the process yet, so older kernels show its exit too.
    until("its end", || job.host.status()["ranks"][0]["exit"]["class"].is_string().then_some(()));
    let (host, rank) = (job.host, job.rank);
    let ended = Ended::seen(&host, rank.end());
    assert_eq!((died_by(ended.outcome.status), &ended.exit["signal"]), (Some(13), &"SIGPIPE".into()));
    assert!(ended.evidence().contains("SIGPIPE"), "{}", ended.evidence());
}

/// A memory control group, of version 1 or 2, if this machine allows one.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(limit: u64) -> Option<Self> {
        let name = format!("xpu-top-test-{}", std::process::id());
        let [first, second] =
            ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(|root| PathBuf::from(root).join(&name));
        let (path, file) = match (fs::create_dir(&first), fs::create_dir(&second)) {
            (Ok(()), _) => (first, "memory.limit_in_bytes"),
            (_, Ok(())) => (second, "memory.max"),
            _ => return None,
        };
        let group = Self(path);
        fs::write(group.0.join(file), limit.to_string()).ok()?;
        for swap in ["memory.memsw.limit_in_bytes", "memory.swap.max"] {
            let _ = fs::write(
                group.0.join(swap),
                if swap.ends_with("max") { "0".to_owned() } else { limit.to_string() },
            );
        }
        Some(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn an_oom_killed_rank_is_reported() {
    let Some(group) = MemoryGroup::new(192 << 20) else {
        skipped_beyond_ci(Beyond::MemoryGroups, "root and a writable /sys/fs/cgroup are needed");
        return;
    };
    // The process joins the group before it trains, as in a scheduler's job.
    let procs = group.0.join("cgroup.procs");
    let host = Host::new();
    let plugin = host.place.path("plugin.py");
    fs::write(&plugin, PLUGIN).unwrap();
    let set = [("XPU_TOP_EXIT_PLUGIN", plugin.to_str().unwrap()), ("GROUP", procs.to_str().unwrap())];
    let script = format!(
        "open(os.environ['GROUP'], 'w').write(str(os.getpid()))\n{BEGIN}\nheld = []\nwhile True: held.append(bytearray(os.urandom(1 << 20)))"
    );
    let rank = host.alone_under("python3", &set, &script);
    until("it to train", || (host.status()["steps"]["min"].as_u64()? >= 1).then_some(()));
    let (ended, _host) = Job { host, rank }.ends();
    assert_eq!(died_by(ended.outcome.status), Some(9), "{:?}", ended.outcome);
    assert_eq!(ended.finding["class"], "oom", "{}", ended.evidence());
    assert!(ended.evidence().contains("OOM"), "{}", ended.evidence());
    ended.plugin_was_called_with(&["exit"]);
}
