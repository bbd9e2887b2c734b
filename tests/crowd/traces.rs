//! Large traces of many ranks, and a host that dies during the transfer: `cargo run --release -p xpu-tests
//! --example traces [MIB] [HOSTS]`.
//!
//! One process simulates the hosts, with eight ranks each, over real ZeroMQ. `xpu-top kineto` fetches their
//! traces into a temporary folder, which is removed at the end.

use std::{
    env, fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use xpu_simulation::Simulation;
use xpu_tests::{
    built,
    crowd::{BASE, Crowd},
    place::Place,
    program::Program,
};
use xpu_wire::frame::KinetoPart;

const RANKS_PER_HOST: u32 = 8;

/// Interval between two checks of what has arrived.
const LOOK: Duration = Duration::from_millis(50);

/// How long the traces may take after the last part has arrived. The command waits as long for a dead host.
const PATIENCE_S: u32 = 120;

fn main() {
    let number =
        |at, otherwise: u32| env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (mib, hosts) = (number(1, 50), number(2, 8));
    assert!(mib > 0 && hosts > 1, "MIB of one rank's trace, at least 1; HOSTS, at least 2");
    let (ranks, dies) = (hosts * RANKS_PER_HOST, hosts / 2);
    let parts = (u64::from(mib) << 20).div_ceil(KinetoPart::BYTES as u64) as u32;
    let whole = u64::from(parts) * KinetoPart::BYTES as u64;
    let place = Place::new();
    let crowd = Crowd::tracing(Simulation::new(7, hosts, RANKS_PER_HOST), parts);
    crowd.start(0..hosts);
    let folder = place.path("traces");
    let mut command = place.command(built::artifact("xpu-top"));
    command.env("HOME", place.path("")).env_remove("XDG_CONFIG_HOME");
    command.args([
        "kineto",
        "--duration",
        "100ms",
        "--wait",
        &PATIENCE_S.to_string(),
        "--hosts",
        &crowd.list(),
    ]);
    command.args(["--base-port", &BASE.0.to_string(), "-o"]).arg(&folder);
    let tracing = Program::start(&mut command);
    let pid = tracing.pid();
    let (mut began, mut died, mut seen, mut most, mut at) = (None, None, 0, 0, Instant::now());
    // Reads the memory while the process lives; afterwards it cannot be read.
    while let Some(peak) = xpu_tests::program::peak_kib(pid) {
        most = peak.max(most);
        let now = bytes(&folder);
        if now > seen {
            (seen, at) = (now, Instant::now());
            began.get_or_insert(at);
        }
        if died.is_none() && seen >= u64::from(ranks) * whole / 2 {
            crowd.stop(dies..dies + 1);
            died = Some(seen);
        }
        assert!(
            at.elapsed() < Duration::from_secs(2 * u64::from(PATIENCE_S)),
            "no byte came: {}",
            tracing.said()
        );
        thread::sleep(LOOK);
    }
    let took = began.map_or(Duration::ZERO, |began: Instant| at - began);
    let done = tracing.end();
    let manifest: Value = serde_json::from_slice(&fs::read(folder.join("manifest.json")).unwrap_or_default())
        .expect("a manifest");
    let of = |status: &str| {
        let all = manifest["ranks"].as_array().into_iter().flatten();
        all.filter(|rank| rank["status"] == status)
            .filter_map(|rank| rank["rank"].as_u64())
            .collect::<Vec<_>>()
    };
    let (written, lost) = (of("written"), of("lost"));
    let size =
        |rank: u64| fs::metadata(folder.join(format!("rank-{rank:04}.json.gz"))).map_or(0, |file| file.len());
    println!("{hosts} hosts, {ranks} ranks, {mib} MiB each: {} MiB in all", (u64::from(ranks) * whole) >> 20);
    println!("host {dies} died after {} MiB", died.unwrap_or(0) >> 20);
    println!(
        "{} MiB in {:.1} s, {:.0} MiB/s",
        seen >> 20,
        took.as_secs_f64(),
        (seen >> 20) as f64 / took.as_secs_f64()
    );
    println!("peak memory of xpu-top: {:.1} MiB", most as f64 / 1024.0);
    println!("exit code {:?}", done.status.code());
    println!("written: {}, each whole: {}", written.len(), written.iter().all(|&rank| size(rank) == whole));
    println!("lost: {lost:?}, of these no file: {}", lost.iter().all(|&rank| size(rank) == 0));
    println!("{}", done.stderr.lines().next_back().unwrap_or_default());
}

/// The bytes of all files in the folder.
fn bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}
