//! The real program on a real terminal: it reads keys and draws the screen, and at its end the terminal is as
//! before.

mod ends;
mod stops;
mod views;

use std::{fs, process::Command};

use xpu_simulation::Simulation;
use xpu_tests::{Lab, built, place::Place, pty::Terminal};
use xpu_wire::id::Rank;

/// A place with a recording: two hosts with four ranks each. One rank becomes slow, and then misses a
/// collective.
struct Fixture {
    place: Place,
}

impl Fixture {
    fn new() -> Self {
        let place = Place::new();
        let lab = Lab::recorded(Simulation::new(7, 2, 4)).run(40).slow_down(Rank(5), 1.4);
        let mut lab = lab.run(40).hang(Rank(3)).run(20);
        lab.read_stacks(0..8);
        fs::write(place.path("night.xpurec"), lab.recording()).expect("a file in a fresh folder");
        Self { place }
    }

    /// `xpu-top` with these arguments, in this place.
    fn xpu_top(&self, line: &str) -> Command {
        let mut command = self.place.command(built::artifact("xpu-top"));
        command.env("HOME", self.place.path("")).env_remove("XDG_CONFIG_HOME");
        command.current_dir(self.place.path("")).args(line.split_whitespace());
        command
    }

    /// The recording at a moment when the rank is slow, on a paused screen.
    fn slow(&self, columns: u16, lines: u16) -> Terminal {
        let terminal = Terminal::start(self.xpu_top("--replay night.xpurec --at 70%"), columns, lines);
        terminal.shows("REPLAY").keys(" ").shows("stopped").shows("next finding ]").shows("rank 5");
        terminal
    }

    /// The program started from the command line of a shell with job control.
    fn shell(&self, line: &str) -> Terminal {
        let mut bash = self.place.command("bash");
        bash.env("HOME", self.place.path("")).current_dir(self.place.path(""));
        bash.env("PS1", "ready> ").args(["--norc", "--noprofile", "-i"]);
        let terminal = Terminal::start(bash, 80, 24);
        let xpu_top = built::artifact("xpu-top");
        terminal.shows("ready>").keys(&format!("{} {line}\r", xpu_top.display()));
        terminal
    }
}
