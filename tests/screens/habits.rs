//! Keys that users know from other programs, and what the screen does without a key.

use xpu_recording::Span;
use xpu_simulation::Simulation;
use xpu_tests::{Lab, Screen};
use xpu_tui::{
    action::{Action, Effect},
    palette::Depth,
    playback::{Of, Playback},
    update::update,
};
use xpu_wire::{id::Rank, unit::Moment};

use crate::{SMALL, golden_at, one_slow};

#[test]
fn q_in_help_closes_help_and_not_the_program() {
    let mut lab = one_slow();
    for (open, close) in [("?", "q"), ("<F1>", "<F10>"), ("h", "h"), ("?/flame<Enter>", "q")] {
        lab.keys(open).screen(80, 24).shows("Esc closes");
        lab.keys(close).screen(80, 24).hides("Esc closes");
        assert_eq!(lab.effects(), [], "{close} closes help only");
    }
    assert_eq!(lab.keys("<F10>").effects(), [Effect::Quit]);
    assert_eq!(one_slow().keys("?<C-c>").effects(), [Effect::Quit]);
    lab.keys("2?").screen(80, 24).shows("back to the page before");
}

/// The second of the day at which the selected finding began, from the page of findings.
fn since(screen: &Screen) -> u32 {
    let text = screen.text();
    let line = text.lines().find(|line| line.contains("since ") && line.contains(" UTC, "));
    let before = line.and_then(|line| line.split(" UTC, ").next()).expect("a finding");
    let clock = before.split_whitespace().next_back().expect("a time");
    clock.split(':').fold(0, |sum, part| 60 * sum + part.parse::<u32>().expect("a number"))
}

#[test]
fn a_pause_does_not_change_the_begin_of_a_finding() {
    let mut lab = one_slow();
    let before = since(&lab.keys("7").screen(132, 40));
    let came = lab.screen(132, 40).text().lines().filter(|line| line.contains(" came ")).count();
    for _ in 0..2 {
        let now = Moment(u64::MAX);
        lab.app().replay(Playback::new(Of::Live, Span { first: Moment(0), last: now }));
        update(lab.app(), Action::Rewind);
        update(lab.app(), Action::GoLive);
        lab = lab.run(3);
        // The page's figures are whole seconds.
        assert!(since(&lab.screen(132, 40)).abs_diff(before) <= 1);
    }
    let after = lab.screen(132, 40).text().lines().filter(|line| line.contains(" came ")).count();
    assert_eq!(after, came, "nothing new has arrived");
}

#[test]
fn views_keep_their_names_on_80_columns_whatever_the_last_key_did() {
    let names = "1 over 2 rank 3 gemm 4 coll 5 step 6 stack 7 find 8 file 9 host";
    let mut lab = one_slow();
    for page in 1..=9 {
        let screen = lab.keys(&page.to_string()).screen(80, 24);
        screen.shows(names).shows("? help");
    }
    lab.keys("1");
    update(lab.app(), Action::Copied(Ok("xpu-top-report-llama-70b-20270115T080000Z.txt".into())));
    lab.screen(80, 24)
        .shows(names)
        .shows("report copied and saved as xpu-top-report-llama-70b-20270115T080000Z.txt");
    lab.keys("j").screen(80, 24).shows(names).hides("report copied");
    lab.screen(132, 40)
        .shows("1 overview   2 rank   3 gemm   4 collectives   5 steps   6 stacks   7 findings");
}

#[test]
fn the_last_column_has_the_history_of_what_is_sorted() {
    let mut lab = one_slow();
    lab.screen(132, 40).shows("TFLOPS history");
    lab.keys(":sort late<Enter>").screen(132, 40).shows("skew ms history").hides("TFLOPS history");
}

#[test]
fn a_report_names_the_hosts_of_the_ranks_that_hang() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4)).hang(Rank(6)).run(14);
    let effects = lab.keys("y").effects();
    let text = effects.iter().find_map(|effect| match effect {
        Effect::Copy(_, text) => Some(text),
        _ => None,
    });
    let text = text.expect("a report");
    assert!(text.contains("rank 6 on gpu-002") && text.contains("  since "), "{text}");
}

#[test]
fn a_list_is_chosen_from_with_arrows_letters_and_the_mouse() {
    let mut lab = one_slow();
    let screen = lab.keys("o").screen(80, 24);
    screen.shows("╭ Sort by ").shows("▌● findings").shows("median arrival skew").shows("Enter choose");
    golden_at("picker-sort", SMALL, &mut lab);
    lab.keys("<Down><Down><Enter>").screen(80, 24).shows("host↑").hides("Sort by");
    lab.keys("ow").screen(80, 24).shows("▌  W ");
    lab.keys("z").screen(80, 24).shows("no line begins with z").shows("▌  W ");
    lab.keys("<Esc>").screen(80, 24).shows("host↑").hides("Sort by");
    lab.keys("o").click((80, 24), "TFLOPS   ", 0).screen(80, 24).shows("TFLOPS↑").hides("Sort by");
    lab.keys("m").screen(80, 24).shows("╭ Maps show ").shows("▌● GEMM TFLOPS").shows("while transferring");
    lab.keys("q").screen(80, 24).hides("Maps show");
    assert_eq!(lab.effects(), [], "q leaves the list, not the program");
    for (page, columns) in [("3", "share of GEMM time"), ("5", "host waits %"), ("9", "heard")] {
        lab.keys(&format!("{page}o")).screen(80, 24).shows("╭ Sort by ").shows(columns);
        lab.keys("<Esc>");
    }
    lab.keys("7o").screen(80, 24).shows("o works only on overview, gemm, steps, hosts");
}

#[test]
fn jobs_are_chosen_from_a_list() {
    let mut lab = Lab::new(Simulation::new(7, 2, 8));
    let other = Simulation { job: "eval".into(), ..Simulation::new(9, 1, 4) };
    lab.arrive(other.snapshots(1_840));
    lab.keys("4J").screen(80, 24).shows("▌● llama-70b").shows("eval").shows("4 ranks");
    lab.keys("e<Enter>").screen(80, 24).shows("eval   job 1 of 2").hides("╭ Jobs");
    lab.keys(":job<Enter>").screen(80, 24).shows("▌● eval");
}

/// A key without effect says why.
#[test]
fn every_key_has_a_visible_effect() {
    let mut healthy = Lab::new(Simulation::new(7, 2, 4));
    for (keys, said) in [
        ("7<Enter>", "no finding to explain"),
        ("7j", "no finding to select"),
        ("3<Enter>", "no GEMM shape to explain yet"),
        ("8<Enter>", "no capture or recording in this folder"),
        ("1<Esc>", "nothing to clear"),
        ("1w", "w works only on stacks: "),
        ("1Z", "Z does nothing here: "),
        ("4o", "o works only on overview, gemm, steps, hosts"),
    ] {
        healthy.keys(keys).screen(110, 30).shows(said);
    }
    let mut nobody = Lab::at_rest(Simulation::new(7, 2, 4), Depth::True);
    for (keys, said) in
        [("y", "no job yet"), ("F", "no job yet"), ("j", "no rank to select"), ("J", "no job yet")]
    {
        nobody.keys(keys).screen(110, 30).shows(said);
    }
}

#[test]
fn shift_j_chooses_a_job_on_every_page() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4));
    for page in 1..=9 {
        lab.keys(&format!("{page}J")).screen(132, 40).shows("llama-70b is the only job");
    }
}
