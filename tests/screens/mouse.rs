//! Everything by mouse alone.

use crossterm::event::{MouseButton, MouseEventKind};
use xpu_client::live::WatchedRanks;
use xpu_recording::Span;
use xpu_simulation::Simulation;
use xpu_tests::Lab;
use xpu_tui::{
    action::Effect,
    keymap::Scope,
    page::Page,
    palette::Depth,
    playback::{Of, Playback},
};
use xpu_wire::id::Rank;

use crate::{USUAL, golden_at, in_fours, one_slow};

const SMALL: (u16, u16) = (80, 24);
const WIDE: (u16, u16) = (132, 40);

#[test]
fn every_view_is_reached_from_every_other_on_any_terminal() {
    let views = [
        Scope::Page(Page::Overview),
        Scope::Page(Page::Rank),
        Scope::Page(Page::Gemms),
        Scope::Page(Page::Collectives),
        Scope::Page(Page::Steps),
        Scope::Page(Page::Stacks),
        Scope::Page(Page::Findings),
        Scope::Page(Page::Captures),
        Scope::Page(Page::Hosts),
    ];
    for size in [(60, 20), SMALL, WIDE, (200, 60)] {
        let mut lab = one_slow();
        for from in 0..views.len() {
            for to in 0..views.len() {
                for view in [from, to] {
                    let footer = lab.screen(size.0, size.1).text();
                    let footer = footer.lines().last().unwrap_or_default();
                    let sign = (view + 1).to_string();
                    let x = footer.find(&sign).map(|at| footer[..at].chars().count() as u16);
                    let place = (x.unwrap_or_else(|| panic!("{sign} is not in {footer}")), size.1 - 1);
                    lab.mouse(size, MouseEventKind::Down(MouseButton::Left), place);
                    assert_eq!(lab.app().scope(), views[view], "{size:?} {from} {to}\n{footer}");
                }
            }
        }
    }
}

/// Without a job, the reasons are shown.
#[test]
fn before_there_is_a_job_hosts_and_captures_are_a_click_away() {
    for size in [(60, 20), SMALL, WIDE] {
        let mut lab = Lab::at_rest(Simulation::new(7, 2, 8), Depth::True);
        for (sign, view) in [
            ("9", Scope::Page(Page::Hosts)),
            ("8", Scope::Page(Page::Captures)),
            ("1", Scope::Page(Page::Overview)),
        ] {
            let footer = lab.screen(size.0, size.1).text().lines().last().unwrap_or_default().to_owned();
            let x = footer.find(sign).unwrap_or_else(|| panic!("{sign} is not in {footer}")) as u16;
            lab.mouse(size, MouseEventKind::Down(MouseButton::Left), (x, size.1 - 1));
            assert_eq!(lab.app().scope(), view, "{size:?}");
        }
    }
}

#[test]
fn a_rank_is_selected_by_the_first_click_and_shown_by_the_next() {
    let mut lab = one_slow();
    lab.click(WIDE, "▼490", 0).screen(132, 40).shows("▌   37  gpu-005");
    lab.click(WIDE, "37  gpu-005", 0);
    assert_eq!(lab.app().scope(), Scope::Page(Page::Rank));
    let watched = lab.effects().last();
    assert!(
        matches!(watched, Some(Effect::WatchRanks(Some(WatchedRanks { ranks, .. }))) if ranks.contains(&Rank(37)))
    );
}

#[test]
fn the_wheel_scrolls_and_a_head_sorts() {
    let mut lab = one_slow();
    lab.mouse(SMALL, MouseEventKind::ScrollDown, (5, 20)).screen(80, 24).shows("▌    1  gpu-001");
    lab.mouse(SMALL, MouseEventKind::ScrollUp, (5, 20)).screen(80, 24).shows("▌   37  gpu-005");
    lab.click(WIDE, "skew ms", 0).screen(132, 40).shows("skew ms↓");
    lab.click(WIDE, "skew ms", 0).screen(132, 40).shows("skew ms↑");
    lab.click(WIDE, "rank  ", 0).screen(132, 40).shows("rank↑");
}

#[test]
fn findings_and_keys_of_the_footer_are_clicked() {
    let mut lab = one_slow();
    lab.click(WIDE, "rank 37 (gpu-005): GEMMs", 0);
    assert_eq!(lab.app().scope(), Scope::Page(Page::Findings));
    lab.click(WIDE, "slow rank", 0);
    assert_eq!(lab.app().scope(), Scope::Page(Page::Rank));
    lab.click(WIDE, "? help", 0).screen(132, 40).shows("╭ Help");
    // A click anywhere else closes it.
    lab.mouse(WIDE, MouseEventKind::Down(MouseButton::Left), (3, 3)).screen(132, 40).hides("╭ Help");
}

#[test]
fn a_click_on_folded_ranks_selects_the_worst() {
    let mut lab = Lab::new(Simulation::new(7, 64, 8)).slow_down(Rank(317), 1.4).run(20);
    let place = find_outlier(&mut lab);
    lab.mouse(SMALL, MouseEventKind::Down(MouseButton::Left), place).screen(80, 24).shows("▌  317");
}

/// The cell with a sign on the left map.
fn find_outlier(lab: &mut Lab) -> (u16, u16) {
    let screen = lab.screen(SMALL.0, SMALL.1);
    let mut cells = (8..17).flat_map(|y| (12..36).map(move |x| (x, y)));
    cells.find(|place| screen.buffer[*place].symbol() == "▼").expect("one is outlier")
}

#[test]
fn clicks_and_drags_on_the_time_bar_seek() {
    let mut lab = Lab::new(Simulation::new(7, 1, 8));
    let end = lab.now();
    let begin = xpu_wire::unit::Moment(end.0 - 100_000_000_000);
    lab.app().replay(Playback::new(Of::File, Span { first: begin, last: end }));
    let screen = lab.screen(132, 40).text();
    let bar = screen.lines().nth(38).expect("the line of time").to_owned();
    let columns: Vec<_> =
        bar.chars().enumerate().filter(|(_, c)| "─●".contains(*c)).map(|(x, _)| x as u16).collect();
    let (first, last) = (columns[0], columns[columns.len() - 1]);
    lab.mouse(WIDE, MouseEventKind::Down(MouseButton::Left), (last, 38));
    assert_eq!(lab.effects().last(), Some(&Effect::Seek(end)));
    lab.mouse(WIDE, MouseEventKind::Drag(MouseButton::Left), (first, 37));
    assert_eq!(lab.effects().last(), Some(&Effect::Seek(begin)));
    // A click on the left end of the timeline pauses it.
    lab.mouse(WIDE, MouseEventKind::Down(MouseButton::Left), (2, 38)).screen(132, 40).shows("stopped");
}

/// From one rank to its peers, to one of these, and on.
#[test]
fn peers_and_communicators_of_a_rank_are_clicked() {
    let mut lab = one_slow();
    lab.keys("2j").screen(132, 40).shows("Rank 0");
    for size in [SMALL, WIDE] {
        // The page names the rank with the worst figure. On that rank's own page no other is worse.
        lab.click(size, "490.2 rank 37", 0).screen(132, 40).shows("Rank 37 gpu-005");
        lab.click(size, "9ca792c9", 0);
        assert_eq!(lab.app().scope(), Scope::Page(Page::Collectives), "{size:?}");
        // This rank is already selected. For another rank, the first click selects it.
        let latest = lab.screen(size.0, size.1).text();
        let latest = latest.lines().position(|line| line.contains("    37 gpu-005")).expect("the latest");
        let next = (6, latest as u16 + 1);
        lab.click(size, "37 gpu-005", 0).screen(132, 40).shows("Rank 37 gpu-005");
        lab.keys("<Esc>").screen(132, 40).shows("Communicators");
        for scope in [Scope::Page(Page::Collectives), Scope::Page(Page::Rank)] {
            lab.mouse(size, MouseEventKind::Down(MouseButton::Left), next);
            assert_eq!(lab.app().scope(), scope, "{size:?}");
        }
        lab.screen(132, 40).hides("Rank 37");
    }
}

/// Of several communicators, the clicked one is shown.
#[test]
fn the_communicator_that_was_clicked_is_selected() {
    let mut lab = in_fours();
    lab.keys("GG2").screen(132, 40).shows("Rank 7");
    lab.click(WIDE, "tp  ", 0)
        .screen(132, 40)
        .shows("▌11110001")
        .shows("Where ranks are tp 11110001, ranks 4-7");
}

#[test]
fn a_waiting_rank_of_a_hung_job_can_be_clicked() {
    let mut lab = Lab::new(Simulation::new(7, 2, 4)).hang(Rank(6)).run(14);
    lab.read_stacks(0..8);
    lab.click(WIDE, "6      66,240", 0)
        .click(WIDE, "6      66,240", 0)
        .screen(132, 40)
        .shows("Rank 6 gpu-002");
}

/// A pointer that moves over moments only shows them. A click selects the rank.
#[test]
fn a_drag_over_the_past_zooms_to_that_time() {
    let mut lab = one_slow();
    lab.keys("x").screen(132, 40).shows("last 3 m").shows("5 s a cell");
    let screen = lab.screen(132, 40).text();
    let (y, line) =
        screen.lines().enumerate().find(|(_, line)| line.contains("gpu-005 32-39")).expect("its row");
    let columns = 55_u16..61;
    assert!(line.chars().nth(64).is_some_and(|edge| edge == '│'), "{line}");
    let hand = |kind, x| (kind, (x, y as u16));
    let down = MouseEventKind::Down(MouseButton::Left);
    let drag = MouseEventKind::Drag(MouseButton::Left);
    let up = MouseEventKind::Up(MouseButton::Left);
    let act = |lab: &mut Lab, (kind, place): (MouseEventKind, (u16, u16))| {
        lab.mouse(WIDE, kind, place);
    };
    // A drag may go from right to left and leave the row. Releasing the button clicks on nothing.
    act(&mut lab, hand(down, columns.end - 1));
    act(&mut lab, (drag, (columns.start, 2)));
    lab.screen(132, 40).shows("08:32:45 to 08:33:15 UTC, 30 s · release to zoom in");
    golden_at("past-marked", USUAL, &mut lab);
    act(&mut lab, hand(up, columns.start));
    let screen = lab.screen(132, 40);
    screen.shows("08:32:45 to 08:33:15 UTC, 30 s · Esc shows all").hides("let go").hides("last 3 m");
    golden_at("past-alone", USUAL, &mut lab);
    assert_eq!(lab.app().scope(), Scope::Page(Page::Overview), "nobody clicked");
    lab.screen(132, 40).hides("▌");
    // Esc first leads back, and only then undoes anything else.
    lab.keys("/rank<60<Enter><Esc>").screen(132, 40).shows("last 3 m").shows("/ rank<60");
    lab.keys("<Esc>").screen(132, 40).hides("/ rank<60");
    // Two clicks.
    for shown in ["▌   3", "Rank 3"] {
        act(&mut lab, hand(down, columns.start));
        act(&mut lab, hand(up, columns.start));
        lab.screen(132, 40).shows(shown);
    }
}

#[test]
fn keys_show_less_and_more_of_the_past() {
    let mut lab = one_slow();
    lab.keys("+").screen(132, 40).shows("this key zooms the heatmaps over time; x shows them");
    lab.keys("x+").screen(132, 40).shows("UTC, 105 s · Esc shows all");
    lab.keys("+").screen(132, 40).shows("UTC, 55 s · Esc shows all");
    lab.keys("--").screen(132, 40).shows("last 3 m");
}
