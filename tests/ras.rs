//! NCCL's RAS service as a second source, in real processes under the real hook and collector. The stand-in
//! NCCL answers at the address given to its ranks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use serde_json::Value;
use xpu_tests::{
    built,
    host::Host,
    program::{Program, run},
    pty::Terminal,
};

/// The longest time from the start of the ranks to the awaited state, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// The calls of each rank, before rank 1 omits one.
const TOGETHER: u64 = 60;

/// As [`TOGETHER`], for a job that is watched for some seconds first.
const LONG: u64 = 400;

/// Both ranks train together for this number of steps. Then rank 1 stops.
fn script(together: u64) -> String {
    format!(
        "
comm = communicator()
for at in range(100000):
    if (RANK, at) == (1, {together}): time.sleep(10000)
    ok(gemm_ex(256, 256, 256))
    ok(all_reduce(comm, 1000))
    sync()
    step()
    time.sleep(0.02)
"
    )
}

#[track_caller]
fn at_last<T>(what: &str, log: impl Fn() -> String, look: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < PATIENCE, "waited for {what}: {}", log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Each host has its own loopback address.
fn ras_of(host: &Host) -> String {
    format!("{}:28028", host.address)
}

fn start(host: &Host, set: &[(&str, &str)], together: u64) -> Vec<Program> {
    let address = ras_of(host);
    let set = [set, &[("NCCL_RAS_ADDR", address.as_str())]].concat();
    (0..2).map(|rank| host.rank_where(rank, &set, &script(together))).collect()
}

fn folder(host: &Host) -> Option<PathBuf> {
    let entries = fs::read_dir(host.place.path("state/xpu-top/hangs")).into_iter().flatten().flatten();
    let finished = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    finished.map(|entry| entry.path()).next()
}

fn document(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// `xpu-top ras` on a folder, after all ranks and the collector have ended.
fn replay(host: &Host, folder: &Path, more: &str) -> xpu_tests::program::Outcome {
    let mut command: Command = host.place.command(built::artifact("xpu-top"));
    command.env("HOME", host.place.path("")).env_remove("XDG_CONFIG_HOME");
    run(command.arg("ras").arg("--replay").arg(folder).args(more.split_whitespace()))
}

#[test]
fn a_hang_has_ras_counts_even_after_the_job_ended() {
    let mut host = Host::new();
    let ranks = start(&host, &[], TOGETHER);
    let log = || host.collector_log();
    let folder = at_last("a folder with RAS's answer", log, || {
        let folder = folder(&host)?;
        folder.join("ras.json").exists().then_some(folder)
    });
    let raw = document(&folder.join("ras.json")).unwrap();
    let members = raw["communicators"][0]["ranks"].as_array().unwrap().clone();
    let launched: Vec<_> = members.iter().map(|one| &one["collective_counts"]["AllReduce"]).collect();
    assert_eq!(launched, [TOGETHER + 1, TOGETHER], "{raw:#}");

    // NCCL omits the zeros in front.
    let hash = raw["communicators"][0]["hash"].as_str().unwrap().trim_start_matches("0x");
    let sentence = format!(
        "RAS: rank 1 has launched {TOGETHER} AllReduces on communicator {}, rank 0 {}; xpu-top: the same\n",
        &format!("{hash:0>16}")[..8],
        TOGETHER + 1
    );
    let asked = host.ask("ras");
    assert_eq!((asked.status.code(), asked.stderr.as_str()), (Some(0), ""), "{asked:?}");
    assert!(asked.stdout.starts_with("NCCL 2.28.9, RAS at 127.90."), "{asked:?}");
    assert!(asked.stdout.contains(&sentence) && asked.stdout.ends_with("the counts agree\n"), "{asked:?}");

    host.end_collector();
    drop(ranks);
    let kept = replay(&host, &folder, "");
    assert_eq!(kept.status.code(), Some(0), "{kept:?}");
    assert!(kept.stdout.contains(&sentence), "{kept:?}");
    let kept: Value = serde_json::from_str(&replay(&host, &folder, "--json").stdout).unwrap();
    let one = &kept["statements"][0];
    assert_eq!(
        (&kept["verdict"], &one["agrees"], &one["ranks"], &one["operation"]),
        (&"agrees".into(), &true.into(), &serde_json::json!([1]), &"AllReduce".into()),
        "{kept:#}"
    );
    let mut screen = host.place.command(built::artifact("xpu-top"));
    screen.env("HOME", host.place.path("")).env_remove("XDG_CONFIG_HOME").arg("--replay").arg(&folder);
    let screen = Terminal::start(screen, 132, 40);
    screen.shows("REPLAY").keys("4").shows(&format!("RAS: rank 1 has launched {TOGETHER}"));
    screen.keys("q");
    let nobody = host.ask("ras");
    assert_eq!(nobody.status.code(), Some(3), "{nobody:?}");
    assert!(nobody.stderr.contains(&format!("xpu-top ras --replay {}", folder.display())), "{nobody:?}");
}

#[test]
fn an_nccl_without_json_is_not_queried_and_the_reason_is_reported() {
    let host = Host::new();
    let ranks = start(&host, &[("SIMGPU_NCCL_VERSION", "22603")], TOGETHER);
    let log = || host.collector_log();
    let folder = at_last("a folder", log, || folder(&host));
    let why = "its RAS does not support JSON, which NCCL 2.28.7 added";
    at_last("RAS to be given up", log, || log().contains(why).then_some(()));
    let asked = host.ask("ras");
    assert_eq!(asked.status.code(), Some(3), "{asked:?}");
    assert!(asked.stdout.starts_with("RAS: no answer: 127.90.") && asked.stdout.contains(why), "{asked:?}");
    assert!(!folder.join("ras.json").exists());
    at_last("the reason in the folder", log, || {
        replay(&host, &folder, "").stdout.contains(why).then_some(())
    });
    drop(ranks);
}

/// The collector queries the RAS port only in a hang. A foreign program on the port does not harm the
/// collector.
#[test]
fn a_healthy_job_is_not_queried_and_a_foreign_listener_does_no_harm() {
    let host = Host::new();
    let listener = TcpListener::bind(ras_of(&host)).unwrap();
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counter.fetch_add(1, SeqCst);
            std::thread::spawn(move || {
                let mut stream = stream;
                while stream.write_all(&[0x1b; 4096]).is_ok() {}
            });
        }
    });
    let ranks = start(&host, &[], LONG);
    let log = || host.collector_log();
    at_last("most of the steps", log, || {
        let rank = host.status()["ranks"][0].clone();
        (rank["step"].as_u64()? >= LONG * 3 / 4).then_some(())
    });
    assert_eq!(taken.load(SeqCst), 0, "nobody asked");
    let folder = at_last("a folder", log, || folder(&host));
    let why = "the program that listens there is not NCCL's RAS";
    at_last("the stranger to be given up", log, || log().contains(why).then_some(()));
    assert!(taken.load(SeqCst) > 0);
    at_last("the reason in the folder", log, || {
        replay(&host, &folder, "").stdout.contains(why).then_some(())
    });
    let status = host.ask("status");
    assert_eq!(status.status.code(), Some(2), "{status:?}");
    assert!(!folder.join("ras.json").exists());
    drop(ranks);
}
