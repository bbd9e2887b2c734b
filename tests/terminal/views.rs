//! Every view is one key away, for a recording as for a running job.

use xpu_tests::pty::Terminal;

use crate::Fixture;

/// The key of each view, and what it shows for any job.
pub(crate) const OF_ANY_JOB: [(&str, &str); 8] = [
    ("2", "Figures among"),
    ("3", "by shape"),
    ("4", "Communicators"),
    ("5", "Where time goes"),
    ("6", "Where ranks are"),
    ("7", "Incidents of the recording"),
    ("8", "In this folder"),
    ("9", "Hosts all are up"),
];

#[test]
fn every_view_is_a_key_away() {
    let fixture = Fixture::new();
    let mut terminal = fixture.slow(80, 24);
    for (key, shown) in OF_ANY_JOB {
        terminal.keys(key).shows(shown).keys("1").shows("GEMM TFLOPS");
    }
    terminal.keys("?").shows("Anywhere").keys("?").hides("Anywhere").keys("q");
    assert!(terminal.end().success());
}

/// The terminal's report of its background colour sets the theme, and is not read as keys.
#[test]
fn the_theme_is_that_of_the_background() {
    let fixture = Fixture::new();
    let name = |ground, arguments: &str| {
        let line = format!("--replay night.xpurec {arguments}");
        let mut terminal = Terminal::start_on(fixture.xpu_top(&line), 80, 24, ground);
        terminal.shows("REPLAY").shows("1 over").hides("does nothing here");
        let colour = terminal.colour(1, 0);
        terminal.keys("q");
        assert!(terminal.end().success());
        colour
    };
    let dark = name(None, "");
    let light = name(None, "--theme light");
    assert_ne!(dark, light);
    assert_eq!(name(Some("ffff/ffff/ffff"), ""), light);
    assert_eq!(name(Some("0d0d/1111/1717"), ""), dark);
    assert_eq!(name(Some("ffff/ffff/ffff"), "--theme dark"), dark, "who names a theme has it");
}

/// What a terminal sends for a mouse: a button is pressed, moved while pressed, and released.
fn mouse(terminal: &Terminal, buttons: &[(u8, u16, u16, char)]) {
    for (button, x, y, end) in buttons {
        terminal.keys(&format!("\x1b[<{button};{};{}{end}", x + 1, y + 1));
    }
}

fn click(terminal: &Terminal, text: &str) {
    let screen = terminal.text();
    let place = screen
        .lines()
        .enumerate()
        .filter_map(|(y, line)| Some((line[..line.find(text)?].chars().count() as u16, y as u16)));
    let (x, y) = place.last().unwrap_or_else(|| panic!("{text:?} is not on the screen:\n{screen}"));
    mouse(terminal, &[(0, x, y, 'M'), (0, x, y, 'm')]);
}

#[test]
fn every_view_is_a_click_away() {
    let fixture = Fixture::new();
    let mut terminal = fixture.slow(132, 40);
    for (key, shown) in OF_ANY_JOB {
        // The last line names the views. On each view it lists the others by number.
        let name = terminal.text().lines().last().unwrap_or_default().to_owned();
        let word = name.split("   ").map(str::trim).find(|word| word.starts_with(key));
        click(&terminal, word.unwrap_or_else(|| panic!("{key} is not in {name}")));
        terminal.shows(shown).keys("1").shows("1 overview   2 rank");
    }
    terminal.keys("q");
    assert!(terminal.end().success());
}

/// The release of a button is also processed.
#[test]
fn a_drag_over_the_past_is_received_to_its_end() {
    let fixture = Fixture::new();
    let mut terminal = fixture.slow(132, 40);
    terminal.keys("x").shows("over time");
    let screen = terminal.text();
    let is_row = |line: &str| line.contains(" gpu-001 1 ");
    let (y, line) = screen.lines().enumerate().find(|(_, line)| is_row(line)).expect("a row");
    let edge = line.split('│').nth(1).expect("a panel").chars().count() as u16;
    let (from, to, y) = (edge - 4, edge - 1, y as u16);
    mouse(&terminal, &[(0, from, y, 'M'), (32, to, y, 'M')]);
    terminal.shows("release to zoom in");
    mouse(&terminal, &[(0, to, y, 'm')]);
    terminal.shows("Esc shows all").hides("let go").keys("\x1b").hides("Esc shows all");
    terminal.keys("q");
    assert!(terminal.end().success());
}
