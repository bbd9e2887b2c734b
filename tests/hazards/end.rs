//! How a program ended, its own measurements, and how it differs from another run.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::Path,
    process::{self, Command},
    sync::Once,
    time::{Duration, Instant},
};

use xpu_tests::program::{Outcome, Program};

/// The size limit of a core in bytes. The kernel notes that a core was written even if only a part is kept.
const CORE: u32 = 64 << 10;

/// Lets programs write cores from now on, if this machine allows it. The exit status shows whether one was
/// written.
pub(crate) fn allow_cores() {
    static ALLOWED: Once = Once::new();
    ALLOWED.call_once(|| {
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &process::id().to_string(), &format!("--core={CORE}:")]);
        // If the hard limit is smaller, or `prlimit` is missing, there are no cores.
        let _ = prlimit.output();
    });
}

#[derive(Debug)]
pub(crate) struct End {
    /// `None` if the program did not end.
    pub(crate) outcome: Option<Outcome>,
    /// The program's own measurements (`figures.h`).
    pub(crate) figures: BTreeMap<String, i64>,
    pub(crate) took: Duration,
    pub(crate) peak_kib: u64,
    /// The most hook threads seen in one process, if they were counted.
    pub(crate) hook_threads: usize,
}

impl End {
    pub(crate) fn of(command: &mut Command, looks_for_threads: bool) -> Self {
        Self::of_program(Program::start(command), looks_for_threads)
    }

    pub(crate) fn of_program(program: Program, looks_for_threads: bool) -> Self {
        let (begun, mut peak_kib, mut hook_threads) = (Instant::now(), 0, 0);
        let outcome = program.end_watched(|program| {
            peak_kib = program.peak_kib().unwrap_or(0).max(peak_kib);
            if looks_for_threads {
                hook_threads = program.hook_threads().max(hook_threads);
            }
        });
        Self { outcome, figures: BTreeMap::new(), took: begun.elapsed(), peak_kib, hook_threads }
    }

    /// Reads the figures that the program wrote.
    pub(crate) fn take_figures(&mut self, from: &Path) {
        let text = fs::read_to_string(from).unwrap_or_default();
        let read = |line: &str| {
            let (name, number) = line.rsplit_once(' ')?;
            Some((name.to_owned(), number.parse().ok()?))
        };
        self.figures = text.lines().filter_map(read).collect();
    }

    /// A line for each difference from `alone`.
    pub(crate) fn differences_from(&self, alone: &Self, allowed: &[(&str, i64)]) -> Vec<String> {
        let Some(outcome) = &self.outcome else { return vec!["it did not end".to_owned()] };
        let Some(expected) = &alone.outcome else { return Vec::new() };
        let mut all = Vec::new();
        if outcome.status != expected.status {
            all.push(format!("{}, not {}", outcome.status, expected.status));
        }
        for (what, said, expected) in
            [("stdout", &outcome.stdout, &expected.stdout), ("stderr", &outcome.stderr, &expected.stderr)]
        {
            if said != expected {
                all.push(format!("{what}: {}", first_difference(said, expected)));
            }
        }
        for &(name, more) in allowed {
            let (Some(&watched), Some(&alone)) = (self.figures.get(name), alone.figures.get(name)) else {
                all.push(format!("{name}: not measured"));
                continue;
            };
            if watched > alone + more {
                all.push(format!("{name}: {watched}, alone {alone}, allowed {more} more"));
            }
        }
        all
    }
}

impl fmt::Display for End {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(outcome) = &self.outcome else { return write!(to, "it did not end") };
        write!(to, "{}, stdout {:?}, stderr {:?}", outcome.status, outcome.stdout, outcome.stderr)?;
        if self.figures.is_empty() { Ok(()) } else { write!(to, ", {:?}", self.figures) }
    }
}

/// The first line that differs.
fn first_difference(said: &str, expected: &str) -> String {
    let (mut said, mut expected) = (said.lines(), expected.lines());
    loop {
        match (said.next(), expected.next()) {
            (Some(one), Some(other)) if one == other => {}
            (None, None) => return "the end of its last line".to_owned(),
            (one, other) => return format!("{:?}, not {:?}", one.unwrap_or(""), other.unwrap_or("")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use xpu_tests::{
        place::Place,
        skip::{Beyond, skipped_beyond_ci},
    };

    use super::*;

    fn end(script: &str) -> End {
        End::of(Command::new("sh").args(["-c", script]), false)
    }

    #[test]
    fn an_additional_core_dump_is_a_difference() {
        allow_cores();
        let place = Place::bare();
        let end = |limit: &str| {
            let script = format!("{limit}kill -ABRT $$");
            End::of(Command::new("sh").args(["-c", &script]).current_dir(place.path("")), false)
        };
        let alone = end("");
        if !alone.outcome.as_ref().unwrap().status.core_dumped() {
            return skipped_beyond_ci(Beyond::Cores, "no program leaves a core here");
        }
        assert!(end("").differences_from(&alone, &[]).is_empty());
        assert_eq!(end("ulimit -c 0; ").differences_from(&alone, &[]).len(), 1);
    }

    #[test]
    fn every_difference_is_reported() {
        let alone = end("echo one; echo two");
        assert!(end("echo one; echo two").differences_from(&alone, &[]).is_empty());
        assert_eq!(
            end("echo one; echo three; echo four >&2; exit 3").differences_from(&alone, &[]),
            [
                "exit status: 3, not exit status: 0",
                r#"stdout: "three", not "two""#,
                r#"stderr: "four", not """#
            ]
        );
        assert_eq!(end("kill -9 $$").differences_from(&alone, &[]).len(), 2);
    }

    #[test]
    fn figures_may_be_as_much_more_as_is_allowed() {
        let (mut alone, mut watched) = (end(":"), end(":"));
        assert_eq!(watched.differences_from(&alone, &[("bytes", 10)]), ["bytes: not measured"]);
        alone.figures.insert("bytes".to_owned(), 5);
        watched.figures.insert("bytes".to_owned(), 15);
        assert!(watched.differences_from(&alone, &[("bytes", 10)]).is_empty());
        assert_eq!(watched.differences_from(&alone, &[("bytes", 9)]), ["bytes: 15, alone 5, allowed 9 more"]);
    }
}
