//! However the program ends, it restores the terminal.

use std::{os::unix::process::ExitStatusExt as _, process::Command};

use xpu_tests::pty::Terminal;

use crate::{Fixture, views::OF_ANY_JOB};

#[test]
fn quitting_restores_the_terminal() {
    let fixture = Fixture::new();
    let mut terminal = fixture.slow(80, 24);
    assert!(terminal.disorder().contains("alternate"), "the test sees what is to be undone");
    terminal.keys("q");
    assert!(terminal.end().success());
    terminal.is_given_back().wait("an empty screen", |screen| screen.trim().is_empty());
}

#[test]
fn every_fatal_signal_restores_the_terminal() {
    let fixture = Fixture::new();
    for signal in ["TERM", "HUP", "INT", "QUIT"] {
        let mut terminal = fixture.slow(80, 24);
        terminal.signal(signal);
        let status = terminal.end();
        assert!(status.success(), "SIG{signal}: {status:?}");
        terminal.is_given_back();
    }
}

/// A logout keeps the screen's state as a quit does.
#[test]
fn the_last_state_is_saved_however_the_screen_ends() {
    let fixture = Fixture::new();
    std::fs::write(fixture.place.path("settings.toml"), "keep_state = true\n")
        .expect("a file in a fresh folder");
    for (key, view, signal) in
        [("9", "hosts", Some("TERM")), ("7", "findings", Some("HUP")), ("4", "collectives", None)]
    {
        let mut command = fixture.xpu_top("--replay night.xpurec --at 70% --config settings.toml");
        command.env("XDG_STATE_HOME", fixture.place.path("state"));
        let mut terminal = Terminal::start(command, 80, 24);
        let (_, shown) = OF_ANY_JOB.into_iter().find(|(of, _)| *of == key).expect("it is in the table");
        terminal.shows("REPLAY").keys(key).shows(shown);
        match signal {
            Some(signal) => terminal.signal(signal),
            None => terminal.keys("q"),
        };
        assert!(terminal.end().success());
        let kept = std::fs::read_to_string(fixture.place.path("state/xpu-top/state.json"));
        let kept = kept.unwrap_or_else(|error| panic!("nothing was kept: {error}"));
        assert!(kept.contains(&format!("\"page\": \"{view}\"")), "{kept}");
    }
}

/// The message is on the restored terminal, and the cursor is below it, where the shell continues.
#[test]
fn a_panic_restores_the_terminal_before_its_message() {
    for (place, said) in [("here", "the thread that draws fails"), ("beside", "a thread beside it fails")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_screen_that_panics"));
        command.arg(place).env("RUST_BACKTRACE", "0");
        let mut terminal = Terminal::start(command, 80, 24);
        terminal.shows("xpu-top").signal("USR1");
        let status = terminal.end();
        assert!(!status.success() && status.signal().is_none(), "{place}: {status:?}");
        terminal.is_given_back().shows(said).shows("screen_that_panics.rs");
        assert!(terminal.cursor_line() > terminal.line_of(said), "{place}: {}", terminal.text());
    }
}

/// A lost connection: the terminal is closed, and SIGHUP is sent.
#[test]
fn a_closed_connection_ends_the_program() {
    let fixture = Fixture::new();
    let mut terminal = fixture.slow(80, 24);
    terminal.cut();
    terminal.end();
}

/// As above, without SIGHUP or with SIGHUP ignored (nohup), and with keys on the way.
#[test]
fn a_closed_connection_ends_the_program_also_without_a_signal() {
    let fixture = Fixture::new();
    let mut command = fixture.place.command("sh");
    command.current_dir(fixture.place.path("")).args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    let inner = fixture.xpu_top("--replay night.xpurec --at 70%");
    command.arg(inner.get_program()).args(inner.get_args());
    let mut terminal = Terminal::start(command, 80, 24);
    terminal.shows("REPLAY").keys("jjjj");
    terminal.cut();
    terminal.end();
}

#[test]
fn without_a_terminal_the_program_explains_what_to_do() {
    let fixture = Fixture::new();
    let outcome = xpu_tests::program::run(&mut fixture.xpu_top("--replay night.xpurec"));
    // The test may itself run on a terminal. Then the program uses that.
    if !outcome.status.success() {
        assert!(outcome.stderr.contains("xpu-top status"), "{outcome:?}");
    }
}
