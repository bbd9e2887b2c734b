//! Hosts that start late, all at once, or never answer again: the real screen over real ZeroMQ.

use std::{fs, sync::atomic::Ordering::Relaxed};

use serde_json::Value;
use xpu_tests::{
    built,
    crowd::{BASE, Crowd, TRACE_PARTS},
    place::Place,
    program::{Program, until},
    pty::Terminal,
};

const HOSTS: u32 = 12;
const RANKS_PER_HOST: u32 = 8;

/// What each view shows of a healthy job. The views of a rank, of GEMMs and of steps are not here: they
/// request details, and the test counts these requests.
const VIEWS: [(&str, &str); 5] = [
    ("4", "Communicators"),
    ("6", "Where ranks are"),
    ("7", "Past findings"),
    ("8", "In this folder"),
    ("9", "Hosts all are up"),
];

#[test]
fn the_screen_shows_hosts_that_come_and_go() {
    let (place, crowd) = (Place::new(), Crowd::new(HOSTS, RANKS_PER_HOST));
    crowd.start(0..10);
    let mut command = place.command(built::artifact("xpu-top"));
    command.env("HOME", place.path("")).env_remove("XDG_CONFIG_HOME");
    command.args(["--hosts", &crowd.list(), "--base-port", &BASE.0.to_string()]);
    let mut terminal = Terminal::start(command, 132, 40);
    // Two hosts start late.
    terminal.shows("80 of 96").shows("PARTIAL");
    crowd.start(10..HOSTS);
    terminal.shows("LIVE").shows("96 of 96").hides("hosts down");
    assert_eq!((lost(&terminal.text()), crowd.tally().refused.load(Relaxed)), (Some(0), 0));
    // Every view is one key away.
    for (key, shown) in VIEWS {
        terminal.keys(key).shows(shown).keys("1").shows("GEMM TFLOPS");
    }
    // Details are requested only for the shown ranks.
    assert_eq!(crowd.tally().details.load(Relaxed), 0);
    terminal.keys("jjj\r");
    xpu_tests::program::until("the rank's details to be sent", || {
        (crowd.tally().details.load(Relaxed) > 0).then_some(())
    });
    terminal.keys("\x1b");
    // All hosts stop, and all start again at once.
    crowd.stop(0..HOSTS);
    terminal.shows("STALE").shows("12 hosts down");
    crowd.start(0..HOSTS);
    terminal.hides("hosts down").shows("LIVE").shows("96 of 96");
    // Three hosts stay away.
    crowd.stop(4..7);
    terminal.shows("3 hosts down").shows("PARTIAL").keys("q");
    assert!(terminal.end().success());
}

/// Traces of 64 ranks from PyTorch's profiler. Only a few parts are in memory at a time, and a host dies
/// during the transfer.
#[test]
fn traces_of_other_hosts_survive_a_dead_host() {
    let (place, crowd) = (Place::new(), Crowd::new(8, 8));
    crowd.start(0..8);
    let folder = place.path("traces");
    let mut command = place.command(built::artifact("xpu-top"));
    command.env("HOME", place.path("")).env_remove("XDG_CONFIG_HOME");
    command.args(["kineto", "--duration", "100ms", "--wait", "20", "--hosts", &crowd.list()]);
    command.args(["--base-port", &BASE.0.to_string(), "-o"]).arg(&folder);
    let tracing = Program::start(&mut command);
    let whole = |rank: usize| {
        let file = fs::metadata(folder.join(format!("rank-{rank:04}.json.gz"))).ok()?;
        (file.len() == u64::from(TRACE_PARTS) << 20).then_some(())
    };
    until("all ranks to be asked", || tracing.said().contains("64 of 64 ranks will trace").then_some(()));
    // One thread sends 256 MiB while other tests run.
    until("the first traces", || whole(3));
    crowd.stop(5..6);
    until("the traces of the last host", || (56..64).all(|rank| whole(rank).is_some()).then_some(()));
    let most = tracing.peak_kib().expect("it still waits for the host that died");
    assert!(most < 100 << 10, "{most} KiB for {} MiB of traces", 64 * TRACE_PARTS);
    let done = tracing.end();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(done.stderr.contains("ranks 40-47: "), "{done:?}");
    let manifest = fs::read(folder.join("manifest.json")).expect("it is there");
    let manifest: Value = serde_json::from_slice(&manifest).expect("a document");
    for (rank, one) in manifest["ranks"].as_array().expect("ranks").iter().enumerate() {
        let is_lost = (40..48).contains(&rank);
        assert_eq!(one["status"], if is_lost { "lost" } else { "written" }, "{one:#}");
        assert_eq!((one["why"].is_null(), one["file"].is_null()), (!is_lost, is_lost), "{one:#}");
        assert_eq!(whole(rank).is_some(), !is_lost, "{one:#}");
        assert_eq!(folder.join(format!("rank-{rank:04}.json.gz")).exists(), !is_lost, "nothing half is left");
    }
}

/// The number in `dropped 12` of the header; on a wide terminal it is below its label.
fn lost(screen: &str) -> Option<u64> {
    let lines: Vec<_> = screen.lines().collect();
    let (line, column) =
        lines.iter().enumerate().find_map(|(line, text)| Some((line, text.find("dropped")?)))?;
    let column = lines[line][..column].chars().count();
    let figure: String =
        lines.get(line + 1)?.chars().skip(column).take_while(|c| !c.is_whitespace()).collect();
    figure.replace(',', "").parse().ok()
}
