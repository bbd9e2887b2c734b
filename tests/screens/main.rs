//! Golden screens. `UPDATE_EXPECT=1` rewrites them; `make screenshots` makes PNGs of them too.

use std::{panic, path::Path};

mod captures;
mod collectives;
mod command;
mod config;
mod films;
mod filter;
mod findings;
mod gemms;
mod habits;
mod hang;
mod help;
mod hosts;
mod looks;
mod maps;
mod mouse;
mod rank;
mod sizes;
mod states;
mod steps;

use expect_test::expect_file;
use ratatui::style::Color;
use xpu_client::arrival::Link;
use xpu_simulation::Simulation;
use xpu_tests::{Lab, Screen};
use xpu_tui::{action::Effect, look::Look, palette::Depth};
use xpu_wire::{
    frame::{Body, Event, Frame, Life, Xid},
    id::{CommunicatorId, Pid, Rank},
};

/// Compares the screen with its golden file.
#[track_caller]
fn golden(name: &str, screen: &Screen) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../screenshots").join(name).with_extension("svg");
    expect_file![path].assert_eq(&screen.svg());
}

/// A small terminal, on which texts are cut, and one of a usual size.
const SMALL: (u16, u16) = (80, 24);
const USUAL: (u16, u16) = (132, 40);

/// The sizes at which the layouts differ: the smallest, the two above, and a wide one.
const SIZES: [(u16, u16); 4] = [(60, 20), SMALL, USUAL, (200, 60)];

#[track_caller]
fn golden_at(name: &str, (width, height): (u16, u16), lab: &mut Lab) {
    golden(&format!("{name}-{width}x{height}"), &lab.screen(width, height));
}

/// Compares a view whose layout differs between the two sizes.
#[track_caller]
fn golden_at_both(name: &str, lab: &mut Lab) {
    golden_at(name, SMALL, lab);
    golden_at(name, USUAL, lab);
}

/// Two hosts with four ranks each. Each host has a communicator of its own, and all ranks have one.
fn in_fours() -> Lab {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    let mut frames = lab.simulation().digests(1_841);
    for frame in &mut frames {
        let Body::Digest(digest) = &mut frame.body else { unreachable!() };
        for rank in &mut digest.ranks {
            let mut group = rank.communicators[0].clone();
            group.id = CommunicatorId((0x1111_0000 + u64::from(rank.rank.0 / 4)) << 32);
            (group.name, group.size, group.rank) = ("tp".to_owned(), 4, rank.rank.0 % 4);
            rank.communicators.push(group);
        }
    }
    lab.arrive(frames);
    lab
}

/// Eight hosts with eight ranks each; for the last minute rank 37 has been slower than the others.
fn one_slow() -> Lab {
    one_slow_at(Depth::True)
}

fn one_slow_at(look: impl Into<Look>) -> Lab {
    Lab::with_depth(Simulation::new(7, 8, 8), look).run(100).slow_down(Rank(37), 1.31).run(60)
}

/// As [`one_slow`], with one slow rank among 1,024.
fn one_of_a_thousand(depth: Depth) -> Lab {
    Lab::with_depth(Simulation::new(7, 128, 8), depth).slow_down(Rank(517), 1.4).run(40)
}

#[test]
fn the_overview_by_tflops() {
    let mut lab = one_slow();
    golden("overview", &lab.keys("ot<Enter>j").screen(132, 40));
}

#[test]
fn a_healthy_job_is_calm() {
    let screen = Lab::new(Simulation::new(7, 8, 8)).screen(132, 40);
    screen.shows("no outliers: 64 ranks").hides("▼");
    golden("healthy", &screen);
    golden("healthy-8-ranks", &Lab::new(Simulation::new(7, 1, 8)).screen(132, 40));
}

#[test]
fn an_80x24_screen_shows_state_speed_and_outliers() {
    one_slow()
        .screen(80, 24)
        .shows("● LIVE")
        .shows("ms")
        .shows("rank 37 (gpu-005): GEMMs ")
        .shows(" ms a step\n")
        .shows("last into 100 % of its collectives")
        .shows("64 of 64");
}

#[test]
fn a_thousand_ranks() {
    let mut lab = one_of_a_thousand(Depth::True);
    golden("1024-ranks-132x40", &lab.screen(132, 40));
    let folded = lab.screen(80, 24);
    folded.shows("the worst shown").shows("rank 517");
    golden("1024-ranks-80x24", &folded);
}

#[test]
fn a_screen_without_data_names_the_silent_hop() {
    let at_rest = || Lab::at_rest(Simulation::new(7, 12, 8), Depth::True);
    at_rest().screen(100, 30).shows("Connecting to 12 hosts");
    let mut lab = at_rest();
    for host in 0..12 {
        let why = "no answer on port 18891 within 3 s; is a collector running there, and does a firewall let it through?";
        lab.link(host, Link::Down { why: why.to_owned() });
    }
    let screen = lab.screen(100, 30);
    screen.shows("No host answers").shows("ssh gpu-001 xpu-top status").shows("and 8 more");
    let mut lab = Lab::at_rest(Simulation::new(7, 2, 8), Depth::True);
    (0..2).for_each(|host| lab.link(host, Link::Up));
    let screen = lab.screen(100, 30);
    screen.shows("2 hosts answer, no job yet").shows("xpu-top run -- ");
}

#[test]
fn an_unreachable_host_is_named_and_its_ranks_are_grey() {
    let mut lab = Lab::new(Simulation::new(7, 8, 8));
    let gone = lab.simulation().host(2);
    lab.link(2, Link::Down { why: "no answer on port 18891 for 12 s".to_owned() });
    let mut lab = lab.run_only(12, |frame| frame.host != gone);
    let screen = lab.keys("oG<Enter>").screen(132, 40);
    screen
        .shows("1 host unreachable: gpu-003")
        .shows("◷ 12 s")
        .shows("56 of 64")
        .shows("PARTIAL")
        .hides("LIVE");
    screen.hides("18,400–");
    golden("host-down", &screen);
}

/// The screen of an ended job shows its last state, and marks it.
#[test]
fn a_job_that_ended_shows_its_last_figures() {
    let mut lab = Lab::new(Simulation::new(7, 2, 8));
    let job = lab.simulation().job.clone();
    let frame = lab.simulation().digests(1).remove(0);
    let ends = (0..16).map(|rank| {
        let life =
            Event::Life { job: job.clone(), rank: Rank(rank), pid: Pid(4000 + rank), life: Life::Ended };
        Frame { body: Body::Event(life), ..frame.clone() }
    });
    lab.arrive(ends.collect());
    let screen = lab.screen(132, 40);
    screen
        .shows("ENDED")
        .shows("last GEMM")
        .shows("last figures")
        .shows("16 of 16")
        .hides("nothing timed yet");
    golden("ended", &screen);
    // Every page shows it the same way.
    lab.keys("9").screen(132, 40).shows("● up").shows("ended").hides("exited").hides("▲");
    lab.keys("1j<Enter>").screen(132, 40).shows("ended").hides("exited");
}

/// One of two hosts is down. Half of the communicator is not seen, so there is no bandwidth, and the reason
/// is shown.
#[test]
fn half_a_communicator_has_no_bandwidth_and_the_reason_is_reported() {
    let mut lab = Lab::at_rest(Simulation::new(7, 2, 4), Depth::True);
    lab.link(0, Link::Up);
    lab.link(1, Link::Down { why: "no collector listens there".to_owned() });
    let seen = lab.simulation().host(0);
    let mut lab = lab.run_only(12, |frame| frame.host == seen);
    let screen = lab.screen(132, 40);
    screen
        .shows("bus GB/s needs all ranks of a communicator: 4 of 8 seen")
        .shows("4 of 8")
        .hides("moves data");
    golden("half-seen", &screen);
}

#[test]
fn blind_spots_and_refused_processes_are_reported() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    let mut frames = lab.simulation().digests(1_841);
    for frame in &mut frames {
        let Body::Digest(digest) = &mut frame.body else { unreachable!() };
        digest.turned_away = 1;
        digest.ranks[0].blind = vec!["XPU_TOP_SAMPLE=gemm=3: write a power of two".to_owned()];
    }
    lab.arrive(frames);
    let screen = lab.screen(132, 40);
    screen.shows("XPU_TOP_SAMPLE=gemm=3: write a power of two");
    screen.shows("2 processes claim ranks of job llama-70b that are taken").shows("--job NAME");
}

#[test]
fn an_invitation_is_shown_in_full_for_half_a_minute() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    let text =
        "join from another terminal: xpu-top --hosts '127.0.0.[1-2]' --base-port 23456 --job llama-70b";
    lab.app().invite(text.to_owned());
    let screen = lab.screen(80, 24);
    screen.shows("no outliers").shows("join from another terminal: xpu-top --hosts").shows("--job llama-70b");
    let mut lab = lab.run(29);
    lab.screen(80, 24).shows("--job llama-70b");
    lab.run(2).screen(80, 24).hides("join from another terminal").shows("no outliers");
}

#[test]
fn the_screen_is_not_live_if_all_hosts_are_silent() {
    let mut lab = Lab::new(Simulation::new(7, 2, 8)).run_only(9, |_| false);
    lab.screen(80, 24).shows("STALE 9 s").shows("last figures").hides("LIVE").hides("nothing timed");
}

#[test]
fn a_dead_rank_is_reported_as_a_finding() {
    let mut lab = Lab::new(Simulation::new(7, 8, 8));
    let job = lab.simulation().job.clone();
    let mut frame = lab.simulation().digests(1_841).remove(2);
    frame.body = Body::Event(Event::Life { job, rank: Rank(21), pid: Pid(4021), life: Life::Died });
    lab.arrive(vec![frame]);
    let screen = lab.keys("oG<Enter>").screen(132, 40);
    screen.shows("✖ RANK GONE 0 s").shows("✖ exited").shows("pid 4021");
    screen.shows("rank 21 (gpu-003) ended without an orderly exit, 0 s ago");
    golden("rank-died", &screen);
    lab.keys("9").screen(132, 40).shows("1 rank exited");
}

#[test]
fn a_screen_without_colours_shows_all_content() {
    let mut lab = one_slow_at(Depth::None);
    let screen = lab.screen(132, 40);
    assert!(screen.buffer.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    screen.shows("▼490");
    golden("no-color", &screen);
    let mut many = one_of_a_thousand(Depth::None);
    golden("no-color-1024-ranks", &many.screen(132, 40));
}

#[test]
fn a_tiny_terminal_still_shows_the_most_important_figure() {
    one_slow().screen(44, 8).shows("● 12").shows("ms a step").shows("needs 60x20");
    // Any size must work, even none.
    for (width, height) in [(1, 1), (0, 0), (3, 40), (300, 1), (60, 20), (61, 20), (79, 60), (300, 20)] {
        Lab::new(Simulation::new(1, 2, 3)).keys("G?").screen(width, height);
    }
}

#[test]
fn selecting_and_sorting_move_the_right_lists() {
    let mut lab = one_slow();
    lab.screen(80, 24).hides("▌");
    // The rank that the finding names comes first, then the others by rank.
    lab.keys("j").screen(80, 24).shows("▌   37");
    lab.keys("jjj<PgDn>").screen(80, 24).shows("▌   12");
    lab.keys("G").screen(80, 24).shows("▌   63").shows("of 64");
    lab.keys("g<Up>").screen(80, 24).shows("▌   37");
    // An explicit sort order takes precedence.
    lab.keys("or<Enter>g").screen(80, 24).shows("▌    0").shows("rank↑");
    // By TFLOPS, worst first.
    lab.keys("ot<Enter>g").screen(80, 24).shows("▌   37").shows("TFLOPS↑");
    lab.keys("O").screen(80, 24).shows("TFLOPS↓");
    lab.keys("<Esc>").screen(80, 24).hides("▌");
}

/// Ranks named in the sentence are in the table below it, however many ranks there are and in every view.
#[test]
fn a_rank_of_a_finding_is_visible() {
    let mut lab = one_slow();
    for (width, height) in [(60, 20), (80, 24), (132, 40), (200, 60)] {
        lab.screen(width, height).shows("   37  gpu-005");
    }
    one_of_a_thousand(Depth::None).screen(132, 40).shows("  517  gpu-065").shows("    0  gpu-001");
    // Filtered ranks stay hidden, and folded rows are ordered by their worst rank.
    lab.keys("/rank<8<Enter>").screen(132, 40).hides("   37  gpu-005");
    lab.keys("/<C-u>rank<40<Enter>").screen(132, 40).shows("   37  gpu-005");
    let screen = lab.keys("/<C-u><Enter>F").screen(132, 40);
    let lines = screen.text();
    let place = |host: &str| lines.rfind(&format!("{host} ×8")).expect(host);
    assert!(place("gpu-005") < place("gpu-001"), "{lines}");
    // An explicit sort order takes precedence.
    lab.keys("FFF").screen(132, 40).shows("   37  gpu-005");
    lab.keys(":sort rank<Enter>").screen(132, 40).hides("   37  gpu-005").shows("rank↑");
    lab.keys(":sort findings<Enter>").screen(132, 40).shows("   37  gpu-005");
}

/// A GPU with a problem: its rank is named, although the rank itself is healthy.
#[test]
fn a_rank_with_gpu_trouble_is_visible_with_the_reason() {
    let mut lab = Lab::new(Simulation::new(7, 8, 8));
    let mut frames = lab.simulation().digests(1_841);
    let Body::Digest(digest) = &mut frames[7].body else { unreachable!() };
    let device = digest.ranks[2].device.as_mut().expect("the driver reports it");
    (device.xids, device.last_xid) = (Some(1), Some(Xid { code: 79, at: device.read }));
    lab.arrive(frames);
    lab.screen(132, 40).shows("   58  gpu-008").shows("▲ gpu");
}

#[test]
fn saving_and_quitting_are_requested_as_effects() {
    let mut lab = one_slow();
    // The first q closes help.
    lab.keys("S?qq<C-c>");
    let Effect::Save(path) = &lab.effects()[0] else { panic!("{:?}", lab.effects()) };
    assert_eq!(path.to_str(), Some("xpu-top-llama-70b-20270115T083327Z.svg"));
    assert_eq!(lab.effects()[1..], [Effect::Quit, Effect::Quit]);
}

#[test]
fn one_key_cycles_through_jobs() {
    let mut lab = Lab::new(Simulation::new(7, 2, 8));
    lab.keys("<Tab>").screen(80, 24).shows("llama-70b is the only job");
    let other = Simulation { job: "eval".into(), ..Simulation::new(9, 1, 4) };
    lab.arrive(other.snapshots(1_840));
    lab.screen(80, 24).shows("llama-70b   job 2 of 2, foremost");
    lab.keys("<Tab>").screen(80, 24).shows("eval   job 1 of 2");
}

/// A golden screen is useful only if the comparison can fail: here one cell changes its colour, but not its
/// letter.
#[test]
fn a_changed_colour_fails_the_comparison() {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        return;
    }
    let mut screen = one_slow().keys("ot<Enter>j").screen(132, 40);
    let coloured = screen.buffer.content.iter().position(|cell| cell.bg != Color::Reset);
    screen.buffer.content[coloured.unwrap()].bg = Color::Rgb(1, 2, 3);
    let compared = panic::catch_unwind(|| golden("overview", &screen));
    assert!(compared.is_err(), "the comparison does not see colours");
}
