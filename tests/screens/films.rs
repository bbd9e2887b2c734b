//! Films of common tasks: `screenshots/casts`, as asciicasts and as animated SVGs.

use std::{path::Path, time::Duration};

use expect_test::expect_file;
use xpu_client::{
    capture::{Extent, Outcome, Progress},
    screen_capture::CaptureState,
};
use xpu_simulation::Simulation;
use xpu_tests::{Lab, film::Film};
use xpu_tui::{action::Action, update::update};
use xpu_wire::id::{Rank, Step};

/// A web page with a file of this size still loads without a wait.
const LARGEST: usize = 1 << 20;

const SECOND: Duration = Duration::from_secs(1);
const BRIEFLY: Duration = Duration::from_millis(500);
const TO_READ: Duration = Duration::from_secs(3);

#[track_caller]
fn golden(name: &str, title: &str, film: &Film) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../screenshots/casts");
    for (ending, text) in [("cast", film.cast(title)), ("svg", film.svg())] {
        assert!(text.len() <= LARGEST, "{name}.{ending} has {} bytes", text.len());
        expect_file![folder.join(name).with_extension(ending)].assert_eq(&text);
    }
}

fn film() -> Film {
    Film::new(100, 30)
}

#[test]
fn a_healthy_job() {
    let (mut lab, mut film) = (Lab::new(Simulation::new(7, 8, 8)), film());
    for keys in ["", "", "", "m", "a<Enter>", "m", "%<Enter>", "1j", "j", "j"] {
        lab.keys(keys);
        film.shoot(&mut lab, SECOND);
        lab = lab.run(1);
    }
    golden("healthy", "xpu-top: a healthy job", &film);
}

#[test]
fn a_rank_becomes_slow() {
    let (mut lab, mut film) = (Lab::new(Simulation::new(7, 8, 8)), film());
    for _ in 0..3 {
        film.shoot(&mut lab, BRIEFLY);
        lab = lab.run(2);
    }
    lab = lab.slow_down(Rank(37), 1.31);
    for _ in 0..12 {
        lab = lab.run(5);
        film.shoot(&mut lab, BRIEFLY);
    }
    film.shoot(lab.keys("f"), TO_READ).shoot(lab.keys("<Enter>"), TO_READ);
    lab.screen(100, 30).shows("rank 37");
    golden("slow-rank", "xpu-top: a rank becomes slow", &film);
}

#[test]
fn a_hang_with_its_stacks() {
    let (mut lab, mut film) = (Lab::new(Simulation::new(7, 2, 4)), film());
    for _ in 0..3 {
        film.shoot(&mut lab, BRIEFLY);
        lab = lab.run(1);
    }
    lab = lab.hang(Rank(6));
    for _ in 0..13 {
        lab = lab.run(1);
        film.shoot(&mut lab, BRIEFLY);
    }
    for come in [0..2, 2..5, 5..8] {
        film.shoot(lab.read_stacks(come), BRIEFLY);
    }
    film.shoot(&mut lab, TO_READ).shoot(lab.keys("n"), TO_READ).shoot(lab.keys("<Esc>"), TO_READ);
    golden("hang", "xpu-top: a hang, and the stacks of all ranks", &film);
}

#[test]
fn a_capture() {
    let (mut lab, mut film) = (Lab::new(Simulation::new(7, 2, 4)), film());
    film.shoot(&mut lab, SECOND);
    let progress = |agreed, whole| {
        let of = Extent::Steps { first: Step(16_402), last: Step(16_404) };
        CaptureState::UnderWay(Progress { of, ranks: 8, agreed, whole })
    };
    let mut story = vec![CaptureState::Beginning];
    story.extend([3, 8].map(|agreed| progress(agreed, 0)));
    story.extend([1, 3, 4, 6, 8].map(|whole| progress(8, whole)));
    story.push(CaptureState::Done(Outcome {
        path: "xpu-top-llama-70b.xpucap".into(),
        complaints: Vec::new(),
        summary: "steps 16,402 to 16,404 of 8 of 8 ranks, 2,160 operations, none dropped".to_owned(),
        bytes: 18_842,
        whole: 8,
        done: 8,
        ranks: 8,
    }));
    for state in story {
        update(lab.app(), Action::Captured(state));
        film.shoot(&mut lab, BRIEFLY);
        lab = lab.run(1);
    }
    film.shoot(&mut lab, TO_READ);
    golden("capture", "xpu-top: three steps of all ranks in one file", &film);
}
