//! The help page.

use xpu_simulation::Simulation;
use xpu_tests::{Lab, Screen};
use xpu_tui::{key::Key, keymap::BINDINGS};

use crate::{SMALL, golden, golden_at, one_slow};

#[test]
fn help_lists_what_the_keys_do() {
    let mut lab = one_slow();
    let screen = lab.keys("?").screen(132, 40);
    screen.shows("choose the column to sort by");
    golden("help", &screen);
    lab.screen(132, 90).shows("Ctrl-c");
    // On a low terminal the rest is reached by scrolling.
    lab.screen(80, 24).hides("next branch with few ranks");
    lab.keys(&"<PgDn>".repeat(7)).screen(80, 24).shows("next branch with few ranks").hides("next job");
    lab.keys("G").screen(80, 24).shows("unknown").shows("a replay's timeline");
    lab.keys("g");
    lab.keys("<Esc>").screen(132, 40).hides("choose the column to sort by");
}

/// The words of the page in one column, without the view behind it.
pub(crate) fn words(screen: &Screen) -> Vec<String> {
    let text = screen.text();
    let mut lines = text.lines().map(|line| line.chars().collect::<Vec<_>>());
    let place = |line: &Vec<char>| {
        let title: String = line.iter().collect();
        let from = title.split("╭ Help").next().filter(|before| before.len() < title.len())?.chars().count();
        Some(from..from + line[from..].iter().position(|c| *c == '╮')?)
    };
    let place = lines.by_ref().find_map(|line| place(&line)).expect("the page is open");
    let inside = lines.map(|line| line.into_iter().skip(place.start).take(place.len()).collect::<String>());
    let inside: Vec<_> = inside.take_while(|line| line.starts_with('│')).collect();
    inside.iter().flat_map(|line| line[3..].split_whitespace().map(str::to_owned)).collect()
}

/// The page lists every binding with all its keys and its full text, whichever view is behind it.
#[test]
fn help_lists_every_key_of_every_view() {
    for view in 1..=9 {
        let mut lab = Lab::new(Simulation::new(7, 1, 8));
        // High enough that nothing needs scrolling.
        let words = words(&lab.keys(&format!("{view}?")).screen(80, 240));
        for binding in BINDINGS.iter() {
            let keys = binding.keys.iter().map(Key::to_string);
            let line: Vec<_> = keys.chain(binding.help.split_whitespace().map(str::to_owned)).collect();
            let is_shown =
                words.windows(line.len()).any(|reported| reported.iter().zip(&line).all(|(a, b)| a == b));
            assert!(is_shown, "{line:?} is not on the help page of view {view}:\n{words:?}");
        }
    }
}

#[test]
fn lines_are_found_by_their_words() {
    let mut lab = one_slow();
    let screen = lab.keys("?/").screen(80, 24);
    screen.shows("words to find on this page").shows("all ranks, and what is wrong");
    // Typing searches at once. Case does not matter, and the words need not be adjacent.
    let screen = lab.keys("Column sort").screen(80, 24);
    screen.shows("4 lines matching").shows("choose the column to sort by").shows("Help / Column sort");
    screen.hides("all ranks, and what is wrong").shows("Hosts").hides("Stacks");
    golden_at("help-search", SMALL, &mut lab);
    lab.keys("<Enter>").screen(80, 24).shows("choose the column to sort by").hides("lines matching");
    // The typed text is kept for changes. If nothing matches, the page says what to do.
    lab.keys("/<C-u>no such thing").screen(80, 24).shows("No matching lines").shows("0 lines");
    lab.keys("<Esc>").screen(80, 24).shows("all ranks, and what is wrong");
    // The first Esc shows all lines again, and the next closes the page. The next visit starts without a
    // search.
    lab.keys("/flame<Enter>").screen(80, 24).shows("flame graph").hides("all ranks, and");
    lab.keys("<Esc>").screen(80, 24).shows("all ranks, and what is wrong");
    lab.keys("/flame<Enter>?").screen(80, 24).hides("Help").shows("Ranks");
    lab.keys("?").screen(80, 24).shows("all ranks, and what is wrong").hides("/ flame");
    // The filter of the ranks is another input.
    lab.keys("?/").screen(80, 24).shows("for example rank<64");
}
