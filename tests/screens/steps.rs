//! Steps: how long they take, since when, and what their time consists of.

use xpu_simulation::Simulation;
use xpu_tests::Lab;
use xpu_tui::{
    action::Action,
    file_loader::{Loaded, Simulated},
    update::update,
};
use xpu_wire::{
    frame::{
        Body, Frame, JobWhatIf, RankDetail, SpanTotals, StepSource, Steps, Summary, TimedBy, Work, example,
    },
    histogram::Histogram,
    id::{Rank, Step},
    unit::{Moment, Nanoseconds},
};

use crate::{SMALL, USUAL, golden, golden_at, golden_at_both, one_slow};

#[test]
fn a_change_of_step_time_is_marked_with_its_step_and_size() {
    let mut lab = one_slow();
    lab.keys("5");
    let mut lab = lab.run(12);
    let screen = lab.screen(132, 40);
    screen
        .shows("▲ 111.1 to 125.0 ms (+12.5 %) from step")
        .shows("steps marked by the program, timed on the GPU");
    screen.shows("GEMM").shows("18.1 % waits for stragglers").shows("other kernels, copies, host");
    screen.shows("single p50").shows("stragglers");
    golden_at("steps", USUAL, &mut lab);
}

/// Spans are shown per step, over the observed time.
#[test]
fn spans_of_the_program_are_on_the_page() {
    let mut lab = one_slow();
    lab.keys("5");
    for (step, data, forward) in [(1_000_000, 5_000, 9_000), (1_000_010, 5_121, 9_400)] {
        let (job, ms) = (lab.simulation().job.clone(), |ms: u64| Nanoseconds(ms * 1_000_000));
        let span = |name: &str, took| SpanTotals { name: name.to_owned(), count: step, took: ms(took) };
        let steps = Steps {
            source: StepSource::Marked,
            completed: Step(step),
            at: Moment(step),
            durations: Histogram::new(),
            timed_by: TimedBy::Gpu,
            optimizer: String::new(),
            work: Work::default(),
        };
        let spans = vec![span("data", data), span("forward", forward)];
        let summary = Summary { steps: Some(steps), spans, ..Summary::default() };
        let body = Body::Detail(RankDetail { job, rank: Rank(37), summary });
        let frame = Frame { body, ..lab.simulation().digests(1).remove(4) };
        lab.arrive(vec![frame]);
    }
    let mut lab = lab.run(2);
    for (width, height) in [(100, 30), (132, 40), (200, 60)] {
        lab.screen(width, height).shows("spans      forward 40.0 ms · data 12.1 ms");
    }
}

/// The sentence is shown only for its own job.
#[test]
fn the_step_time_of_the_last_capture_without_stragglers_is_on_the_page() {
    let mut lab = one_slow();
    lab.keys("5");
    let mut lab = lab.run(12);
    let sentence = "If rank 37 were as fast as the others, a step would take 97.1 ms instead of 112.4 ms.";
    let of = |job: &str| Box::new(Simulated { job: job.into(), sentence: sentence.to_owned() });
    update(lab.app(), Action::Loaded(Loaded::Simulated(Some(of("another")))));
    assert!(!lab.screen(132, 40).text().contains("what-if"));
    let job = lab.simulation().job.clone();
    update(lab.app(), Action::Loaded(Loaded::Simulated(Some(of(job.as_str())))));
    for (width, height) in [(80, 24), (132, 40), (200, 60)] {
        let screen = lab.screen(width, height);
        screen.shows("what-if").shows("a step would take").shows("112.4 ms.");
    }
}

/// The sum comes from the host of rank 0. Without a sum, nothing is shown.
#[test]
fn what_stragglers_have_cost_the_job_is_on_the_page() {
    let mut lab = one_slow();
    lab.keys("5");
    let mut lab = lab.run(12);
    assert!(!lab.screen(132, 40).text().contains("GPU-hours"));
    let job = lab.simulation().job.clone();
    let at = lab.simulation().digests(1_841)[0].now;
    let sentences = vec![
        "Stragglers make a step 12.5 % longer than the ideal one.".to_owned(),
        "If rank 37 were as fast as the others, a step would take 97.1 ms instead of 112.4 ms.".to_owned(),
    ];
    let since = Moment(at.0 - 17_556_000_000_000);
    let of = JobWhatIf {
        job: job.clone(),
        since,
        at,
        ranks: vec![(Rank(37), 1.198)],
        sentences,
        ..example::what_if()
    };
    let frame = |of: JobWhatIf, lab: &mut Lab| {
        let frame = Frame { body: Body::WhatIf(of), ..lab.simulation().digests(1_841).remove(0) };
        lab.arrive(vec![frame]);
    };
    frame(of.clone(), &mut lab);
    for (width, height) in [(80, 24), (100, 30), (132, 40), (200, 60)] {
        let screen = lab.screen(width, height);
        screen.shows("what-if    If rank 37 were as fast").shows("lost       1.204 of 8.827 GPU-hours");
        screen.shows("by 59 captures").shows("2027-01-15").shows("03:38:05");
    }
    golden_at_both("steps-lost", &mut lab);
    // A capture without an estimate leaves the sum, and is explained.
    let later = |ns: u64| JobWhatIf { at: Moment(at.0 + ns), ..of.clone() };
    let failed = JobWhatIf { failed: 1, why: "the job hangs".to_owned(), sentences: Vec::new(), ..later(1) };
    frame(failed, &mut lab);
    lab.screen(132, 40).shows("what-if    no estimate: the job hangs").shows("lost       1.204");
    // The newer of two captures counts.
    frame(later(2), &mut lab);
    let simulated = Simulated { job, sentence: "If rank 5 were as fast".to_owned() };
    update(lab.app(), Action::Loaded(Loaded::Simulated(Some(Box::new(simulated)))));
    lab.screen(132, 40).shows("what-if    If rank 5").shows("lost       1.204");
    frame(JobWhatIf { at: Moment(u64::MAX), ..of }, &mut lab);
    lab.screen(132, 40).shows("what-if    If rank 37");
}

/// If there is enough space, the overview shows step times: since when, and what takes the time.
#[test]
fn a_wide_overview_shows_step_times_beside_the_maps() {
    let mut lab = one_slow();
    lab.screen(199, 60).hides("Step time");
    let screen = lab.screen(200, 60);
    screen
        .shows("Step time")
        .shows("now 125.0")
        .shows("m ago ")
        .shows("step 17,940")
        .shows("▲ 111.1 to 125.0 ms (+12.5 %)");
    screen.shows("GEMM       ").shows("host waits");
    let line = screen.text().lines().find(|line| line.contains("host waits")).map(str::to_owned);
    assert!(line.is_some_and(|line| line.contains(" %")), "{}", screen.text());
    lab.click((200, 60), "Step time", 0).screen(200, 60).shows("Where time goes");
    // The maps of a few hosts are low, and the line still fits.
    let mut few = Lab::new(Simulation::new(7, 1, 8)).run(60);
    golden("overview-few-200x60", &few.screen(200, 60));
}

#[test]
fn ranks_are_sorted_and_one_of_them_is_gone_to() {
    let mut lab = one_slow();
    let mut lab = {
        lab.keys("5");
        lab.run(2)
    };
    // Sorted by arrival skew first, then by the speed of GEMMs.
    lab.keys("g").screen(132, 40).shows("skew ms↓").shows("▌    37");
    lab.keys("ot<Enter>").screen(132, 40).shows("TFLOPS↑").shows("▌    37");
    lab.keys("O").screen(132, 40).shows("TFLOPS↓");
    lab.keys("<Enter>").screen(132, 40).shows("Rank 37");
}

/// Figures arrive at any time within a second.
#[test]
fn ranks_are_in_order_of_the_figures_that_are_shown() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4)).run(20);
    lab.keys("5os<Enter>O").screen(132, 40).shows("step ms↑");
    // Twice within one second, the second time in reverse order.
    for turned in [false, true] {
        let mut frames = lab.simulation().digests(1_861);
        for frame in &mut frames {
            let Body::Digest(digest) = &mut frame.body else { unreachable!() };
            for rank in &mut digest.ranks {
                let place = u64::from(if turned { rank.rank.0 } else { 7 - rank.rank.0 });
                rank.step_at.0 += 20_000_000 * place;
                rank.heard.0 += 100_000_000 * u64::from(turned);
            }
        }
        lab.arrive(frames);
        let screen = lab.screen(132, 40).text();
        let lines = screen.lines().skip_while(|line| !line.contains("step ms↑")).skip(1).take(8);
        let ranks: Vec<u32> =
            lines.filter_map(|line| line.split_whitespace().find_map(|word| word.parse().ok())).collect();
        let expected: Vec<u32> = if turned { (0..8).collect() } else { (0..8).rev().collect() };
        assert_eq!(ranks, expected, "{screen}");
    }
}

/// The figures under this heading in the list of ranks on page 5.
fn column(screen: &str, heading: &str) -> Vec<f64> {
    let mut lines = screen.lines().skip_while(|line| !line.contains(heading));
    let header = lines.next().expect("a line with the heading");
    let (left, _) = header.split_once(heading).expect("the heading");
    let end = left.chars().count() + heading.chars().count();
    let before = |line: &str| line.chars().take(end).collect::<String>();
    lines.map_while(|line| before(line).split_whitespace().last()?.parse().ok()).collect()
}

#[test]
fn late_ranks_are_in_the_order_that_the_heading_shows() {
    let mut lab = one_slow();
    lab.keys("5");
    let mut lab = lab.run(12);
    for (keys, heading) in [("", "skew ms↓"), ("O", "skew ms↑")] {
        let screen = lab.keys(keys).screen(132, 40);
        let late = column(&screen.text(), heading);
        let mut sorted = late.clone();
        sorted.sort_by(f64::total_cmp);
        if heading.ends_with('↓') {
            sorted.reverse();
        }
        assert_eq!(late, sorted, "{heading}");
        // Only the slow rank enters its collectives last.
        assert_eq!(late.iter().any(|&late| late > 0.0), keys.is_empty(), "{late:?}");
    }
}

#[test]
fn a_steady_job_has_a_line_and_no_change() {
    let mut lab = Lab::new(Simulation::new(7, 8, 8)).run(60);
    lab.keys("5");
    let mut lab = lab.run(2);
    lab.screen(132, 40).shows("now 111.1 ms").hides(" from step ").hides("│▲");
    golden_at("steps-steady", USUAL, &mut lab);
}

#[test]
fn the_line_begins_when_the_screen_started() {
    let simulation = Simulation::new(7, 2, 4);
    let mut lab = Lab::at_rest(simulation.clone(), xpu_tui::palette::Depth::True);
    lab.arrive(simulation.snapshots(1_800));
    lab.keys("5").screen(132, 40).shows("the line begins now");
    golden_at("steps-begin", USUAL, &mut lab);
}

#[test]
fn the_line_of_a_hung_job_ends_with_the_duration() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    lab.keys("5");
    let mut lab = lab.hang(Rank(6)).run(30);
    lab.screen(132, 40).shows("no step for 30 s");
    golden_at("steps-hang", USUAL, &mut lab);
}

#[test]
fn without_steps_the_screen_shows_how_to_mark_them() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    let without = |source: Option<StepSource>, lab: &mut Lab| {
        let mut frames = lab.simulation().digests(1_841);
        for frame in &mut frames {
            let Body::Digest(digest) = &mut frame.body else { unreachable!() };
            for rank in &mut digest.ranks {
                rank.step_source = source;
                if source.is_none() {
                    (rank.step, rank.step_median, rank.step_count) = (None, None, 0);
                }
            }
        }
        lab.arrive(frames);
    };
    without(Some(StepSource::Detected), &mut lab);
    lab.keys("5").screen(132, 40).shows("steps detected, timed on the GPU");
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    without(Some(StepSource::Optimizer), &mut lab);
    lab.keys("5").screen(132, 40).shows("steps of the optimizer, timed on the GPU");
    lab.keys("1").screen(132, 40).shows("optimizer step");
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    without(None, &mut lab);
    lab.keys("5").screen(132, 40).shows("No steps yet").shows("tracer.step()");
    golden_at("steps-none", SMALL, &mut lab);
}
