//! Runs a program of this folder with and without the hook: with each build of the hook, each behaviour of
//! the collector, and disabled.

use std::{fmt, path::PathBuf, process::Command};

use xpu_tests::{
    built::{self, Build},
    listener::Sender,
    place::Place,
    program::until,
    skip::skipped,
};

use crate::{
    collector::{Collector, under},
    end::{End, allow_cores},
    stand_in,
};

/// How a program is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Watched(Build, Collector),
    /// With `XPU_TOP_DISABLE=1`.
    Disabled(Build),
}

/// The default build runs with each state of the collector. Builds differ only in the libraries that they
/// bring into a process, which do not depend on the collector.
pub(crate) const CASES: [Case; 10] = [
    Case::Watched(Build::Default, Collector::Absent),
    Case::Watched(Build::Default, Collector::Listens),
    Case::Watched(Build::Default, Collector::Dies),
    Case::Watched(Build::Default, Collector::Stuck),
    Case::Watched(Build::Default, Collector::HangsUp),
    Case::Watched(Build::Default, Collector::Late),
    Case::Watched(Build::Packaged, Collector::Listens),
    Case::Watched(Build::Packaged, Collector::Absent),
    Case::Disabled(Build::Default),
    Case::Disabled(Build::Packaged),
];

pub(crate) const NOTHING: [PathBuf; 0] = [];

/// The variable that names the file for a program's figures (`figures.h`).
const FIGURES: &str = "HAZARD_FIGURES";

pub(crate) struct Hazard {
    pub(crate) place: Place,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<PathBuf>,
    /// Other preloads, before and after the hook.
    pub(crate) others: (Option<PathBuf>, Option<PathBuf>),
    /// Runs only with a disabled hook, because the program checks that nothing of the hook is present.
    only_disabled: bool,
    /// What this machine lacks to run the program.
    missing: Option<String>,
    code: i32,
    signal: Option<i32>,
    /// Figures of the program, and how much larger each may be with the hook.
    allowed: Vec<(&'static str, i64)>,
}

impl Hazard {
    /// A program of `hazards/` that finds the stand-ins at run time, and ends with this exit code without the
    /// hook.
    pub(crate) fn new(name: &str, code: i32) -> Self {
        let place = Place::new();
        Self::of(place.hazard(name), place, code)
    }

    /// A script of `hazards/`.
    pub(crate) fn script(name: &str) -> Self {
        Self::script_that_ends(name, 0)
    }

    /// A script of `hazards/` with another exit code.
    pub(crate) fn script_that_ends(name: &str, code: i32) -> Self {
        Self::of("python3".into(), Place::new(), code).with(built::source("hazards").join(name))
    }

    /// A program of `hazards/` linked against the stand-ins in C, with one copy of each.
    pub(crate) fn linked(source: &str, code: i32) -> Self {
        Self::linked_with(source, &[], code)
    }

    /// As [`Self::linked`], with flags for the linker.
    pub(crate) fn linked_with(source: &str, flags: &[&str], code: i32) -> Self {
        let place = Place::bare();
        stand_in::all(&place);
        let hazard = Self::of(place.path("program"), place, code);
        hazard.compile(source, "program", &[flags, &stand_in::LINKED].concat());
        hazard
    }

    /// A program of `hazards/` in a place without libraries.
    pub(crate) fn bare(source: &str, code: i32) -> Self {
        let hazard = Self::bare_and_uncompiled(code);
        hazard.compile(source, "program", &[]);
        hazard
    }

    /// As [`Self::bare`], but the caller must compile the program to `program`.
    pub(crate) fn bare_and_uncompiled(code: i32) -> Self {
        let place = Place::bare();
        Self::of(place.path("program"), place, code)
    }

    pub(crate) fn of(program: PathBuf, place: Place, code: i32) -> Self {
        Self {
            program,
            place,
            arguments: Vec::new(),
            others: (None, None),
            only_disabled: false,
            missing: None,
            code,
            signal: None,
            allowed: Vec::new(),
        }
    }

    /// Compiles a source of `hazards/` to a file in this place.
    #[track_caller]
    pub(crate) fn compile(&self, source: &str, to: &str, flags: &[&str]) -> PathBuf {
        let to = self.place.path(to);
        let lib = self.place.path("lib").display().to_string();
        // Where the linker finds the dependencies of a linked library.
        let (libraries, theirs) = (format!("-L{lib}"), format!("-Wl,-rpath-link,{lib}"));
        built::compile(&format!("hazards/{source}"), &to, &[&[&*libraries, &*theirs], flags].concat());
        to
    }

    pub(crate) fn with(mut self, argument: impl Into<PathBuf>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets a variable (`NAME=value`). Call this after all arguments are set.
    pub(crate) fn set(mut self, variable: &str) -> Self {
        let program = std::mem::replace(&mut self.program, "env".into());
        self.arguments.splice(0..0, [variable.into(), program]);
        self
    }

    /// The program ends by this signal.
    pub(crate) fn by(mut self, signal: i32) -> Self {
        self.signal = Some(signal);
        self
    }

    /// This figure may be larger by `more` with the hook.
    pub(crate) fn allows(mut self, figure: &'static str, more: i64) -> Self {
        self.allowed.push((figure, more));
        self
    }

    /// A hazard that cannot run on this machine.
    ///
    /// # Panics
    /// In CI, where nothing may be missing.
    #[track_caller]
    pub(crate) fn without(what: &str) -> Self {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{what}");
        Self { missing: Some(what.to_owned()), ..Self::of(PathBuf::from("true"), Place::bare(), 0) }
    }

    pub(crate) fn only_disabled(mut self) -> Self {
        self.only_disabled = true;
        self
    }

    /// Runs the program alone and in every case, and checks that nothing differs. Returns what the listening
    /// collector received with the default build.
    #[track_caller]
    pub(crate) fn is_harmless(&self) -> Vec<Sender> {
        if let Some(missing) = &self.missing {
            skipped(missing);
            return Vec::new();
        }
        let alone = self.alone();
        let (mut received, mut differences) = (Vec::new(), Vec::new());
        for case in self.cases() {
            let Some((end, said)) = self.watched(case) else {
                skipped(&format!("{case}: that build of the hook is not there (make packaged-hook)"));
                continue;
            };
            if case == Case::Watched(Build::Default, Collector::Listens) {
                received = said;
            }
            let never_ended = end.outcome.is_none();
            differences.extend(self.differences(case, &alone, &end));
            // The next case would take as long.
            if never_ended {
                break;
            }
        }
        assert!(differences.is_empty(), "alone: {alone}\n{}", differences.join("\n"));
        received
    }

    /// As [`Self::is_harmless`], and returns every message. At its end a program waits at most 250 ms for the
    /// hook's last message. On a busy machine that may be too short, and the program is run again.
    #[track_caller]
    pub(crate) fn is_harmless_and_observed(&self) -> Vec<Sender> {
        let mut received = self.is_harmless();
        until("a run of which everything is received", || {
            if received.is_empty() || !received.iter().all(|sender| sender.goodbye) {
                received = self.watched(Case::Watched(Build::Default, Collector::Listens))?.1;
                return None;
            }
            Some(std::mem::take(&mut received))
        })
    }

    /// Runs the program without the hook.
    #[track_caller]
    pub(crate) fn alone(&self) -> End {
        let mut command = self.place.command(&self.program);
        let others: Vec<_> = [&self.others.0, &self.others.1].into_iter().flatten().collect();
        if !others.is_empty() {
            command.env("LD_PRELOAD", others[0]);
        }
        let end = self.end_of(&mut command, |command| (End::of(command, false), Vec::new())).0;
        let status = end.outcome.as_ref().map(|outcome| outcome.status);
        assert!(status.is_some_and(|status| self.expects(status)), "by itself it should not fail: {end}");
        assert_eq!(self.place.leftovers(), NOTHING);
        end
    }

    fn expects(&self, status: std::process::ExitStatus) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        match self.signal {
            Some(signal) => status.signal() == Some(signal),
            None => status.code() == Some(self.code),
        }
    }

    pub(crate) fn cases(&self) -> impl Iterator<Item = Case> {
        let only_disabled = self.only_disabled;
        CASES.into_iter().filter(move |case| !only_disabled || matches!(case, Case::Disabled(_)))
    }

    /// `None` if this build of the hook does not exist.
    #[track_caller]
    pub(crate) fn watched(&self, case: Case) -> Option<(End, Vec<Sender>)> {
        let (Case::Watched(build, _) | Case::Disabled(build)) = case;
        let preloads = [self.others.0.clone(), Some(built::hook_of(build)?), self.others.1.clone()];
        let preloads: Vec<_> = preloads.iter().flatten().map(|path| path.display().to_string()).collect();
        let mut command = self.place.command(&self.program);
        command.env("LD_PRELOAD", preloads.join(":"));
        Some(match case {
            Case::Watched(_, collector) => {
                self.end_of(&mut command, |command| under(collector, &self.place, command))
            }
            Case::Disabled(_) => {
                command.env("XPU_TOP_DISABLE", "1");
                self.end_of(&mut command, |command| (End::of(command, true), Vec::new()))
            }
        })
    }

    fn end_of(
        &self,
        command: &mut Command,
        run: impl FnOnce(&mut Command) -> (End, Vec<Sender>),
    ) -> (End, Vec<Sender>) {
        let figures = self.place.path("figures");
        let _ = std::fs::remove_file(&figures);
        allow_cores();
        command.args(&self.arguments).env(FIGURES, &figures).current_dir(self.place.path(""));
        let (mut end, said) = run(command);
        end.take_figures(&figures);
        (end, said)
    }

    /// The differences from a run without the hook, one per line.
    pub(crate) fn differences(&self, case: Case, alone: &End, watched: &End) -> Vec<String> {
        let mut all = watched.differences_from(alone, &self.allowed);
        let leftovers = self.place.leftovers();
        if leftovers != NOTHING {
            all.push(format!("left behind: {leftovers:?}"));
        }
        let threads = usize::from(matches!(case, Case::Watched(..)));
        if watched.hook_threads > threads {
            all.push(format!("{} threads of the hook's in a process", watched.hook_threads));
        }
        all.into_iter().map(|difference| format!("{case}: {difference}")).collect()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Watched(build, collector) => write!(to, "{build:?} build, collector {collector:?}"),
            Self::Disabled(build) => write!(to, "{build:?} build, disabled"),
        }
    }
}
