//! Every view empty, loading, with an error, and full. A forgotten state fails here.

use std::path::Path;

use xpu_client::arrival::Link;
use xpu_tests::{Lab, Screen};
use xpu_tui::{page::Page, palette::Depth};
use xpu_wire::{id::Rank, simulation::Simulation};

use crate::golden;

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
        "overview-no-job",
        By::This(no_job, &["2 hosts answer, no job yet", "xpu-top run -- "]),
    ),
    (Overview, Loading, "overview-connecting", By::This(|| connecting("1"), CONNECTING)),
    (
        Overview,
        Error,
        "overview-no-answer",
        By::This(no_answer, &["No host answers", "Key 9 shows every host's link"]),
    ),
    (Overview, Full, "overview", By::Others),
    (One, Empty, "rank-none", By::This(|| of_nobody("2"), &["No rank matches the filter rank>900"])),
    (One, Loading, "rank-waiting", By::Others),
    (One, Error, "rank-silent", By::This(|| unheard("2"), &["9 shows its host"])),
    (One, Full, "views/rank", By::Others),
    (Gemms, Empty, "gemms-none", By::Others),
    (Gemms, Loading, "gemms-asked", By::Others),
    (Gemms, Error, "gemms-silent", By::Others),
    (Gemms, Full, "gemms", By::Others),
    (Collectives, Empty, "collectives-none", By::Others),
    (Collectives, Loading, "collectives-connecting", By::This(|| connecting("4"), CONNECTING)),
    (
        Collectives,
        Error,
        "collectives-partly",
        By::This(partly, &["4 of 8 are seen", "Unknown: it needs all"]),
    ),
    (Collectives, Full, "collectives-slow", By::Others),
    (Steps, Empty, "steps-none", By::Others),
    (Steps, Loading, "steps-begin", By::Others),
    (Steps, Error, "steps-silent", By::This(|| unheard("5"), &["STALE", "no reports from the job"])),
    (Steps, Full, "steps", By::Others),
    (Stacks, Empty, "stacks-none", By::This(unread, &["No stacks read yet", "a reads every rank"])),
    (Stacks, Loading, "hang-reading", By::Others),
    (Stacks, Error, "stacks-silent", By::Others),
    (Stacks, Full, "hang", By::Others),
    (Findings, Empty, "findings-none", By::Others),
    (Findings, Loading, "findings-connecting", By::This(|| connecting("7"), CONNECTING)),
    (Findings, Error, "findings-stale", By::Others),
    (Findings, Full, "findings-slow", By::Others),
    (Captures, Empty, "captures-none", By::Others),
    (Captures, Loading, "captures-reading", By::Others),
    (Captures, Error, "captures-unreadable", By::Others),
    (Captures, Full, "captures", By::Others),
    (Hosts, Empty, "hosts-none", By::Others),
    (Hosts, Loading, "hosts-connecting", By::Others),
    (Hosts, Error, "hosts-down", By::Others),
    (Hosts, Full, "hosts", By::Others),
];

const CONNECTING: &[&str] = &["Connecting to 2 hosts", "Key 9 shows every host's link"];
const SIZES: [(u16, u16); 2] = [(80, 24), (132, 40)];

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
fn every_view_has_a_picture_of_each_of_its_states() {
    for page in Page::ALL {
        for state in [Empty, Loading, Error, Full] {
            let known = TABLE.iter().filter(|(of, is, ..)| (*of, *is) == (page, state)).count();
            assert_eq!(known, 1, "{page:?} {state:?}");
        }
    }
    for (page, state, name, by) in &TABLE {
        for (width, height) in SIZES {
            let sized = format!("{name}-{width}x{height}");
            match by {
                By::Others => {
                    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../screenshots").join(&sized);
                    assert!(path.with_extension("svg").exists(), "{page:?} {state:?}: {sized}");
                }
                By::This(lab, says) => {
                    let screen = lab().screen(width, height);
                    says_all(&screen, says);
                    golden(&sized, &screen);
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
fn a_rank_that_does_not_answer_is_reported_with_the_way_to_its_host() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    lab.keys("2").screen(132, 40).shows("waiting for its next summary");
    let mut lab = lab.run_only(9, |frame| !matches!(frame.body, xpu_wire::frame::Body::Detail(_)));
    lab.screen(132, 40).shows("requested 9 s ago, no answer yet: 9 shows its host");
    let mut lab = Lab::new(Simulation::new(7, 2, 4)).hang(Rank(6)).run(2);
    lab.keys("2").screen(80, 24).shows("waiting for its next summary");
}
