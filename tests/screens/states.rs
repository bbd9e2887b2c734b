//! Every view empty, loading, with an error, and full. A forgotten state fails here.

use std::path::Path;

use xpu_client::arrival::Link;
use xpu_simulation::Simulation;
use xpu_tests::{Lab, Screen};
use xpu_tui::{page::Page, palette::Depth};
use xpu_wire::id::Rank;

use crate::{SMALL, USUAL, golden};

/// The states of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is nothing of this kind.
    Empty,
    /// The data have not arrived yet.
    Loading,
    /// The data do not arrive, or are old.
    Error,
    Full,
}

use Page::{Captures, Collectives, Findings, Gemms, Hosts, Overview, Rank as One, Stacks, Steps};
use State::{Empty, Error, Full, Loading};

/// Who makes the golden screen.
enum By {
    /// The tests of the view.
    Others,
    /// This test: the view in this state, and the texts that it must show.
    This(fn() -> Lab, &'static [&'static str]),
}

const TABLE: [(Page, State, &str, By); 36] = [
    (
        Overview,
        Empty,
        "overview-no-job-80x24",
        By::This(no_job, &["2 hosts answer, no job yet", "xpu-top run -- "]),
    ),
    (Overview, Loading, "overview-connecting-80x24", By::This(|| connecting("1"), CONNECTING)),
    (
        Overview,
        Error,
        "overview-no-answer-80x24",
        By::This(no_answer, &["No host answers", "Key 9 shows every host's link"]),
    ),
    (Overview, Full, "overview", By::Others),
    (One, Empty, "rank-none-80x24", By::This(|| of_nobody("2"), &["No rank matches the filter rank>900"])),
    (One, Loading, "rank-waiting-132x40", By::Others),
    (One, Error, "rank-silent-80x24", By::This(|| unheard("2"), &["9 shows its host"])),
    (One, Full, "rank", By::Others),
    (Gemms, Empty, "gemms-none-80x24", By::Others),
    (Gemms, Loading, "gemms-asked-132x40", By::Others),
    (Gemms, Error, "gemms-silent-80x24", By::Others),
    (Gemms, Full, "gemms-132x40", By::Others),
    (Collectives, Empty, "collectives-none-80x24", By::Others),
    (Collectives, Loading, "findings-connecting-80x24", By::This(|| connecting("4"), CONNECTING)),
    (
        Collectives,
        Error,
        "collectives-partly-132x40",
        By::This(partly, &["4 of 8 are seen", "Unknown: it needs all"]),
    ),
    (Collectives, Full, "collectives-slow-132x40", By::Others),
    (Steps, Empty, "steps-none-80x24", By::Others),
    (Steps, Loading, "steps-begin-132x40", By::Others),
    (Steps, Error, "steps-silent-80x24", By::This(|| unheard("5"), &["STALE", "no reports from the job"])),
    (Steps, Full, "steps-132x40", By::Others),
    (Stacks, Empty, "stacks-none-80x24", By::This(unread, &["No stacks read yet", "a reads every rank"])),
    (Stacks, Loading, "hang-reading-132x40", By::Others),
    (Stacks, Error, "stacks-silent-132x40", By::Others),
    (Stacks, Full, "hang-132x40", By::Others),
    (Findings, Empty, "findings-none-80x24", By::Others),
    (Findings, Loading, "findings-connecting-80x24", By::This(|| connecting("7"), CONNECTING)),
    (Findings, Error, "findings-stale-80x24", By::Others),
    (Findings, Full, "findings-slow-132x40", By::Others),
    (Captures, Empty, "captures-none-80x24", By::Others),
    (Captures, Loading, "captures-reading-80x24", By::Others),
    (Captures, Error, "captures-unreadable-80x24", By::Others),
    (Captures, Full, "captures-132x40", By::Others),
    (Hosts, Empty, "hosts-none-80x24", By::Others),
    (Hosts, Loading, "hosts-connecting-80x24", By::Others),
    (Hosts, Error, "hosts-down-132x40", By::Others),
    (Hosts, Full, "hosts-132x40", By::Others),
];

const CONNECTING: &[&str] = &["Connecting to 2 hosts", "Key 9 shows every host's link"];

fn connecting(key: &str) -> Lab {
    let mut lab = Lab::at_rest(Simulation::new(7, 2, 8), Depth::True);
    lab.keys(key);
    lab
}

fn no_job() -> Lab {
    let mut lab = connecting("1");
    (0..2).for_each(|host| lab.link(host, Link::Up));
    lab
}

fn no_answer() -> Lab {
    let mut lab = connecting("1");
    let why = "no answer on port 18891 within 3 s; is a collector running there, and does a firewall let it through?";
    (0..2).for_each(|host| lab.link(host, Link::Down { why: why.to_owned() }));
    lab
}

/// The filter excludes all ranks.
fn of_nobody(key: &str) -> Lab {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    lab.keys("/rank>900<Enter>").keys(key);
    lab
}

/// A job that was found, and then sent nothing more.
fn unheard(key: &str) -> Lab {
    let simulation = Simulation::new(7, 2, 4);
    let mut lab = Lab::at_rest(simulation.clone(), Depth::True);
    (0..2).for_each(|host| lab.link(host, Link::Up));
    lab.arrive(simulation.snapshots(1_800));
    lab.keys(key);
    lab.run_only(9, |_| false)
}

/// One of two hosts is down.
fn partly() -> Lab {
    let mut lab = Lab::at_rest(Simulation::new(7, 2, 4), Depth::True);
    lab.link(0, Link::Up);
    lab.link(1, Link::Down { why: "no collector listens there".to_owned() });
    let seen = lab.simulation().host(0);
    let mut lab = lab.run_only(12, |frame| frame.host == seen);
    lab.keys("4");
    lab
}

/// The page was opened before there was a job with stacks to read.
fn unread() -> Lab {
    let mut lab = connecting("6");
    (0..2).for_each(|host| lab.link(host, Link::Up));
    let snapshots = lab.simulation().snapshots(1_800);
    lab.arrive(snapshots);
    lab.run(5)
}

#[test]
fn every_view_has_a_golden_screen_of_each_state() {
    for page in Page::ALL {
        for state in [Empty, Loading, Error, Full] {
            let known = TABLE.iter().filter(|(of, is, ..)| (*of, *is) == (page, state)).count();
            assert_eq!(known, 1, "{page:?} {state:?}");
        }
    }
    for (page, state, name, by) in &TABLE {
        match by {
            By::Others => {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../screenshots").join(name);
                assert!(path.with_extension("svg").exists(), "{page:?} {state:?}: {name}");
            }
            By::This(lab, says) => {
                let mut lab = lab();
                for (width, height) in [SMALL, USUAL] {
                    let screen = lab.screen(width, height);
                    says_all(&screen, says);
                    if name.ends_with(&format!("-{width}x{height}")) {
                        golden(name, &screen);
                    }
                }
            }
        }
    }
}

fn says_all(screen: &Screen, says: &[&str]) {
    // A line break may separate words.
    let text = screen.text().split_whitespace().collect::<Vec<_>>().join(" ").replace(" │ ", " ");
    for words in says {
        assert!(text.contains(words), "{words:?} is not on the screen:\n{}", screen.text());
    }
}

/// A request without an answer is shown with its age.
#[test]
fn a_silent_rank_is_reported_with_the_path_to_its_host() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    lab.keys("2").screen(132, 40).shows("waiting for its next summary");
    let mut lab = lab.run_only(9, |frame| !matches!(frame.body, xpu_wire::frame::Body::Detail(_)));
    lab.screen(132, 40).shows("requested 9 s ago, no answer yet: 9 shows its host");
    let mut lab = Lab::new(Simulation::new(7, 2, 4)).hang(Rank(6)).run(2);
    lab.keys("2").screen(80, 24).shows("waiting for its next summary");
}
