//! The program is stopped and continued, and the terminal's size changes.

use xpu_tests::pty::Terminal;

use crate::Fixture;

/// Ctrl-Z and `fg` in a shell: the shell's prompt is on the previous screen, and `fg` redraws the whole
/// screen.
#[test]
fn the_shell_has_the_terminal_while_the_program_is_stopped() {
    let fixture = Fixture::new();
    let terminal = fixture.shell("--replay night.xpurec --at 70%");
    terminal
        .shows("REPLAY")
        .keys(" ")
        .shows("stopped")
        .keys("7")
        .shows("next finding ]")
        .shows("Incidents of the recording");
    let picture = terminal.text();
    terminal.keys("\x1a").wait("the prompt", prompts_after_a_stop).hides("REPLAY").is_given_back_to_a_shell();
    terminal.keys("fg\r").wait("the picture as it was", |screen| screen == picture);
    terminal.keys("q").hides("REPLAY").shows("ready>").is_given_back_to_a_shell();
}

/// `kill -TSTP` from outside, and SIGSTOP, which leaves no time to restore the terminal.
#[test]
fn a_stop_signal_from_outside_also_restores_the_terminal() {
    let fixture = Fixture::new();
    let terminal = fixture.shell("--replay night.xpurec --at 70%");
    terminal.shows("REPLAY").keys(" ").shows("stopped").shows("next finding ]");
    let picture = terminal.text();
    for signal in ["TSTP", "STOP"] {
        terminal.signal_child(signal);
        terminal.wait("the prompt", prompts_after_a_stop).keys("fg\r");
        terminal.wait("the picture as it was", |screen| screen == picture);
    }
    terminal.keys("q").hides("REPLAY").is_given_back_to_a_shell();
}

/// The shell reports that the program is stopped, and prompts after that. The prompt in which the program was
/// started is visible before that, when the program may still read the keys.
fn prompts_after_a_stop(screen: &str) -> bool {
    screen.rsplit_once("Stopped").is_some_and(|(_, after)| after.contains("ready>"))
}

/// The program is alone on its terminal, as in its own window, so it could not be continued.
#[test]
fn without_a_shell_the_program_does_not_stop() {
    let fixture = Fixture::new();
    let terminal = fixture.slow(80, 24);
    let picture = terminal.text();
    terminal.keys("\x1a").wait("the picture as it was", |screen| screen == picture);
    terminal.keys("?").shows("Anywhere");
}

#[test]
fn many_resizes_leave_the_picture_of_the_last_size() {
    let fixture = Fixture::new();
    let terminal = fixture.slow(80, 24);
    let picture = terminal.text();
    for round in 0..60_u16 {
        terminal.resize(20 + round * 37 % 240, 3 + round * 23 % 80);
    }
    terminal.resize(132, 40).shows("step time");
    terminal.resize(80, 24).wait("the picture as it was", |screen| screen == picture);
}

/// One key redraws a screen on which other programs have written.
#[test]
fn a_damaged_screen_is_redrawn() {
    let fixture = Fixture::new();
    let terminal: Terminal = fixture.slow(80, 24);
    let picture = terminal.text();
    terminal.spoil("a message of the system").shows("a message of the system");
    terminal.keys("\x0c").wait("the picture as it was", |screen| screen == picture);
}
