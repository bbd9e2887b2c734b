//! The same screens in other themes, with few colours, in ASCII, and with wide letters.

use ratatui::buffer::Cell;
use xpu_simulation::Simulation;
use xpu_tests::{Lab, Screen};
use xpu_tui::{
    letters::Letters,
    look::Look,
    palette::{Depth, Theme},
};
use xpu_wire::{
    frame::Frame,
    id::{HostName, Rank},
};

use crate::{golden, one_slow_at};

#[test]
fn every_theme_has_a_golden_screen() {
    for theme in Theme::ALL.into_iter().filter(|theme| *theme != Theme::default()) {
        let look = Look { theme, ..Depth::True.into() };
        golden(&format!("theme-{theme}"), &one_slow_at(look).screen(132, 40));
    }
}

#[test]
fn terminals_with_few_colours_have_golden_screens() {
    for (depth, name) in [(Depth::Indexed, "256-colours"), (Depth::Sixteen, "16-colours")] {
        golden(name, &one_slow_at(depth).screen(132, 40));
    }
}

fn ascii(depth: Depth) -> Look {
    Look { letters: Letters::Ascii, ..depth.into() }
}

/// The screen is pure ASCII, and has a form for every symbol: a missing one would add a question mark.
#[track_caller]
fn is_ascii_of(screen: Screen, unicode: Screen) -> Screen {
    let marks = |screen: &Screen| screen.text().matches('?').count();
    assert!(screen.text().is_ascii(), "{}", screen.text());
    assert_eq!(marks(&screen), marks(&unicode), "{}", screen.text());
    screen
}

#[test]
fn plain_ascii_shows_all_content() {
    for (depth, name) in [(Depth::True, "ascii"), (Depth::None, "ascii-no-color")] {
        let (mut plain, mut unicode) = (one_slow_at(ascii(depth)), one_slow_at(depth));
        for (keys, width, height) in [("1", 80, 24), ("1x", 132, 40), ("1?", 132, 40), ("?f", 80, 24)] {
            is_ascii_of(plain.keys(keys).screen(width, height), unicode.keys(keys).screen(width, height));
        }
        let screen =
            is_ascii_of(one_slow_at(ascii(depth)).screen(132, 40), one_slow_at(depth).screen(132, 40));
        screen.shows("v490").shows("! rank 37").shows("* ok");
        golden(name, &screen);
    }
}

#[test]
fn plain_ascii_shows_many_ranks_and_a_hang() {
    let hang = |look| {
        let mut lab = Lab::with_depth(Simulation::new(7, 2, 4), look).hang(Rank(6)).run(14);
        lab.read_stacks(0..8).screen(132, 40)
    };
    golden("ascii-hang", &is_ascii_of(hang(ascii(Depth::True)), hang(Depth::True.into())));
    let many = |look| {
        Lab::with_depth(Simulation::new(7, 128, 8), look).slow_down(Rank(517), 1.4).run(40).screen(132, 40)
    };
    golden("ascii-1024-ranks", &is_ascii_of(many(ascii(Depth::True)), many(Depth::True.into())));
}

/// Names with letters that are two columns wide, with an emoji, and with a combining accent.
const NAMES: [&str; 4] = ["計算機-01", "gpu-🚀-02", "cafe\u{301}-03", "node-04"];

fn renamed(frames: Vec<Frame>) -> Vec<Frame> {
    let named = frames.into_iter().zip(NAMES);
    named.map(|(frame, name)| Frame { host: HostName(name.to_owned()), ..frame }).collect()
}

fn abroad(look: impl Into<Look>) -> Lab {
    let simulation = Simulation { job: "学習-🚀".into(), ..Simulation::new(7, 4, 2) };
    let mut lab = Lab::at_rest(simulation.clone(), look);
    lab.arrive(renamed(simulation.snapshots(1_800)));
    for second in 1_801..1_812 {
        lab.arrive(renamed(simulation.digests(second)));
    }
    lab
}

/// The columns of the cells that show this symbol.
fn columns_of(screen: &Screen, symbol: &str) -> Vec<u16> {
    let area = screen.buffer.area;
    let cells = area.rows().skip(1).flat_map(ratatui::layout::Rect::columns);
    let shows = |cell: &Cell| cell.symbol() == symbol;
    cells.filter(|at| shows(&screen.buffer[(at.x, at.y)])).map(|at| at.x).collect()
}

#[test]
fn wide_letters_in_names_do_not_move_a_column() {
    for (width, height) in [(80, 24), (132, 40), (200, 60)] {
        let screen = abroad(Depth::True).screen(width, height);
        // Only the table's symbols: others are at the start of a line, or in the header.
        let states: Vec<_> = columns_of(&screen, "●").into_iter().filter(|column| *column > 8).collect();
        assert!(states.len() == 8 && states.iter().all(|column| *column == states[0]), "{}", screen.text());
        for name in ["計", "🚀", "cafe"] {
            assert!(screen.text().contains(name), "{}", screen.text());
        }
        assert!(abroad(ascii(Depth::True)).screen(width, height).text().is_ascii());
    }
    golden("wide-letters", &abroad(Depth::True).screen(132, 40));
    abroad(Depth::True).keys("4").screen(80, 24);
}
