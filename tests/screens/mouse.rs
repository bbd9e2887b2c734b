//! All of it by mouse alone.

use crossterm::event::{MouseButton, MouseEventKind};
use xpu_shared::{id::Rank, simulation::Simulation};
use xpu_tests::Lab;
use xpu_top::{
    action::Effect,
    keymap::Scope,
    palette::Depth,
    replay::{Of, Playback},
};

use crate::one_slow;

const SMALL: (u16, u16) = (80, 24);
const WIDE: (u16, u16) = (132, 40);

#[test]
fn every_view_is_reached_from_every_other_on_any_terminal() {
    let views = [
        Scope::Overview,
        Scope::Rank,
        Scope::Gemms,
        Scope::Collectives,
        Scope::Steps,
        Scope::Stacks,
        Scope::Findings,
        Scope::Captures,
        Scope::Hosts,
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

/// Where there is no job, those are that tell why.
#[test]
fn before_there_is_a_job_hosts_and_captures_are_a_click_away() {
    for size in [(60, 20), SMALL, WIDE] {
        let mut lab = Lab::at_rest(Simulation::new(7, 2, 8), Depth::True);
        for (sign, view) in [("9", Scope::Hosts), ("8", Scope::Captures), ("1", Scope::Overview)] {
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
    assert_eq!(lab.app().scope(), Scope::Rank);
    let watched = lab.effects().last();
    assert!(matches!(watched, Some(Effect::WatchRanks(Some((_, ranks)))) if ranks.contains(&Rank(37))));
}

#[test]
fn the_wheel_scrolls_and_a_head_sorts() {
    let mut lab = one_slow();
    lab.mouse(SMALL, MouseEventKind::ScrollDown, (5, 20)).screen(80, 24).shows("▌    2  gpu-001");
    lab.mouse(SMALL, MouseEventKind::ScrollUp, (5, 20)).screen(80, 24).shows("▌    0  gpu-001");
    lab.click(WIDE, "late ms", 0).screen(132, 40).shows("late ms↓");
    lab.click(WIDE, "late ms", 0).screen(132, 40).shows("late ms↑");
    lab.click(WIDE, "rank  ", 0).screen(132, 40).shows("rank↑");
}

#[test]
fn findings_and_keys_of_the_footer_are_clicked() {
    let mut lab = one_slow();
    lab.click(WIDE, "rank 37 (gpu-005) runs", 0);
    assert_eq!(lab.app().scope(), Scope::Findings);
    lab.click(WIDE, "slow rank", 0);
    assert_eq!(lab.app().scope(), Scope::Rank);
    lab.click(WIDE, "? help", 0).screen(132, 40).shows("╭ Help");
    // Anywhere else closes it.
    lab.mouse(WIDE, MouseEventKind::Down(MouseButton::Left), (3, 3)).screen(132, 40).hides("╭ Help");
}

#[test]
fn where_several_ranks_share_a_place_the_worst_is_meant() {
    let mut lab = Lab::new(Simulation::new(7, 64, 8)).slow_down(Rank(317), 1.4).run(20);
    let place = find_coloured(&mut lab);
    lab.mouse(SMALL, MouseEventKind::Down(MouseButton::Left), place).screen(80, 24).shows("▌  317");
}

/// The place on the left map whose colour no other has.
fn find_coloured(lab: &mut Lab) -> (u16, u16) {
    let screen = lab.screen(SMALL.0, SMALL.1);
    let cells: Vec<_> = (8..17).flat_map(|y| (12..36).map(move |x| (x, y))).collect();
    let look = |place: (u16, u16)| (screen.buffer[place].fg, screen.buffer[place].bg);
    let map: Vec<_> = cells.into_iter().filter(|place| screen.buffer[*place].symbol() == "▀").collect();
    let alone = |place: &&(u16, u16)| map.iter().filter(|other| look(**other) == look(**place)).count() == 1;
    *map.iter().find(alone).expect("one is odd")
}

#[test]
fn a_click_on_the_bar_of_time_goes_there_and_a_drag_moves_along() {
    let mut lab = Lab::new(Simulation::new(7, 1, 8));
    let end = lab.now();
    let begin = xpu_shared::unit::Moment(end.0 - 100_000_000_000);
    lab.app().replay(Playback::new(Of::File, (begin, end)));
    let screen = lab.screen(132, 40).text();
    let bar = screen.lines().nth(38).expect("the line of time").to_owned();
    let columns: Vec<_> =
        bar.chars().enumerate().filter(|(_, c)| "─●".contains(*c)).map(|(x, _)| x as u16).collect();
    let (first, last) = (columns[0], columns[columns.len() - 1]);
    lab.mouse(WIDE, MouseEventKind::Down(MouseButton::Left), (last, 38));
    assert_eq!(lab.effects().last(), Some(&Effect::Seek(end)));
    lab.mouse(WIDE, MouseEventKind::Drag(MouseButton::Left), (first, 37));
    assert_eq!(lab.effects().last(), Some(&Effect::Seek(begin)));
    // Its left end stops time.
    lab.mouse(WIDE, MouseEventKind::Down(MouseButton::Left), (2, 38)).screen(132, 40).shows("stopped");
}
