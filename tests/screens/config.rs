//! The user's own settings on the screen.

use xpu_tui::{
    config::{Config, State},
    keymap::{BINDINGS, Scope},
    page::Page,
};

use crate::one_slow;

#[test]
fn help_lists_every_binding_as_it_is_bound() {
    let mut lab = one_slow();
    let config = "[keys]\nsave = \"F9\"\nquit = [\"Q\"]\nover-time = []\n";
    lab.app().configure(&Config::read(config).expect("it is fine"));
    let screen = lab.keys("?").screen(200, 300);
    // Long help texts continue on the next line.
    let words = crate::help::words(&screen).join(" ");
    for binding in BINDINGS.iter() {
        assert!(words.contains(binding.help), "{} is not in {words}", binding.help);
    }
    screen
        .shows("F9            save the screen")
        .shows("Q             quit")
        .hides("x             the heatmaps over");
    lab.keys("<Esc>").screen(260, 60).shows("F9 save SVG");
}

#[test]
fn texts_name_the_bound_keys() {
    let mut lab = one_slow();
    lab.screen(200, 60).shows("f shows why");
    let config = "[keys]\nfindings = [\"7\", \"F5\"]\nrecord = \"F6\"\ncapture = []\n";
    lab.app().configure(&Config::read(config).expect("it is fine"));
    lab.screen(200, 60).shows("F5 shows why").hides("f shows why");
    lab.keys("8").screen(200, 60).shows("F6 records from now on");
    assert_eq!(xpu_tui::keymap::Keymap::default().key(Scope::Page(Page::Stacks), "read-stacks"), "a");
}

#[test]
fn the_screen_opens_with_the_requested_page() {
    let mut lab = one_slow();
    let config =
        Config::read("page = \"findings\"\nmetric = \"late\"\nsort = \"late\"\nfilter = \"rank<40\"\n");
    lab.app().configure(&config.expect("it is fine"));
    assert_eq!(lab.app().scope(), Scope::Page(Page::Findings));
    lab.keys("1").screen(132, 40).shows("arrival skew ms").shows("skew ms↓").shows("Ranks / rank<40");
}

#[test]
fn the_next_screen_begins_in_the_saved_state() {
    let mut lab = one_slow();
    lab.keys(":metric late<Enter>:sort tflops reversed<Enter>/rank<9<Enter>").screen(132, 40);
    let state = lab.app().state();
    let mut next = one_slow();
    next.app().resume(&state);
    next.screen(132, 40).shows("arrival skew ms").shows("TFLOPS↓").shows("Ranks / rank<9");
    next.keys(":<Up>").screen(132, 40).shows(": sort tflops reversed");
    next.keys("<Esc>");
    assert_eq!(next.app().state(), state);
    // Settings that another version kept are ignored.
    let invalid = State {
        page: "moon".to_owned(),
        metric: "luck".to_owned(),
        sort: "!".to_owned(),
        ..State::default()
    };
    next.app().resume(&invalid);
    next.screen(132, 40).shows("arrival skew ms");
}
