//! A program of this folder, run with and without the hook, under each thing its collector may be up to.

use std::{
    io::Read as _,
    os::unix::net::UnixListener,
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use xpu_tests::{
    built,
    listener::{AtFirstWord, Listener, Speaker},
    place::Place,
    program::{Outcome, Program, run, until},
};

/// What a program's collector may be up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collector {
    Absent,
    Listens,
    /// Goes away at the first thing it is told, and takes its socket along.
    Dies,
    /// Takes connections and never reads from them, as one that is stopped does.
    Stuck,
    /// Goes away in the middle of a connection's first words.
    HangsUp,
    /// Is there only after the hook has started to look for it.
    Late,
}

pub(crate) const ALL: [Collector; 6] = [
    Collector::Absent,
    Collector::Listens,
    Collector::Dies,
    Collector::Stuck,
    Collector::HangsUp,
    Collector::Late,
];

pub(crate) const NOTHING: [PathBuf; 0] = [];

pub(crate) struct Hazard {
    pub(crate) place: Place,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<PathBuf>,
    /// Preloads of somebody else's, before and after the hook.
    pub(crate) others: (Option<PathBuf>, Option<PathBuf>),
    pub(crate) code: i32,
}

impl Hazard {
    /// A program of `hazards/` that ends with this exit code by itself.
    pub(crate) fn new(name: &str, code: i32) -> Self {
        let place = Place::new();
        Self::of(place.hazard(name), place, code)
    }

    /// A script of `hazards/`.
    pub(crate) fn script(name: &str) -> Self {
        Self::of("python3".into(), Place::new(), 0).with(built::source("hazards").join(name))
    }

    pub(crate) fn of(program: PathBuf, place: Place, code: i32) -> Self {
        Self { program, place, arguments: Vec::new(), others: (None, None), code }
    }

    pub(crate) fn with(mut self, argument: PathBuf) -> Self {
        self.arguments.push(argument);
        self
    }

    /// Runs it unwatched, then watched under every collector, and finds no difference. Gives what the one that listens
    /// has heard.
    #[track_caller]
    pub(crate) fn is_harmless(&self) -> Vec<Speaker> {
        let mut command = self.place.command(&self.program);
        let others: Vec<_> = [&self.others.0, &self.others.1].into_iter().flatten().collect();
        if !others.is_empty() {
            command.env("LD_PRELOAD", others[0]);
        }
        let alone = run(command.args(&self.arguments));
        assert_eq!(alone.status.code(), Some(self.code), "by itself it should not fail: {alone:?}");
        assert_eq!(self.place.leftovers(), NOTHING);
        let mut heard = Vec::new();
        for collector in ALL {
            let (watched, said) = self.watched_under(collector);
            assert_eq!(watched, alone, "collector: {collector:?}");
            assert_eq!(self.place.leftovers(), NOTHING, "collector: {collector:?}");
            if collector == Collector::Listens {
                heard = said;
            }
        }
        heard
    }

    /// The same, and gives all that was said to the end. A hook waits 100 ms until its last word is taken and not longer, which on
    /// a busy machine is too short now and then: it is then run again.
    #[track_caller]
    pub(crate) fn is_harmless_and_heard(&self) -> Vec<Speaker> {
        let mut heard = self.is_harmless();
        until("a run of which everything is heard", || {
            if heard.is_empty() || !heard.iter().all(|speaker| speaker.goodbye) {
                heard = self.watched_under(Collector::Listens).1;
                return None;
            }
            Some(std::mem::take(&mut heard))
        })
    }

    #[track_caller]
    pub(crate) fn watched_under(&self, collector: Collector) -> (Outcome, Vec<Speaker>) {
        let mut command = self.place.watched(&self.program);
        let preloads = [self.others.0.clone(), Some(built::hook()), self.others.1.clone()];
        let preloads: Vec<_> = preloads.iter().flatten().map(|path| path.display().to_string()).collect();
        command.env("LD_PRELOAD", preloads.join(":"));
        under(collector, &self.place, command.args(&self.arguments))
    }
}

#[track_caller]
pub(crate) fn under(collector: Collector, place: &Place, command: &mut Command) -> (Outcome, Vec<Speaker>) {
    let socket = place.socket();
    match collector {
        Collector::Absent => (run(command), Vec::new()),
        Collector::Listens => {
            let listener = Listener::at(&socket);
            let outcome = run(command);
            // What was said last may still be on its way.
            let all_said = || listener.heard().iter().all(|speaker| speaker.goodbye).then_some(());
            if outcome.status.code().is_some() && !listener.heard().is_empty() {
                let patience = Instant::now() + Duration::from_secs(2);
                until("a goodbye, or that there is none", || {
                    all_said().or_else(|| (Instant::now() > patience).then_some(()))
                });
            }
            (outcome, listener.heard())
        }
        Collector::Dies => {
            let _listener = Listener::that(AtFirstWord::Dies, &socket);
            (run(command), Vec::new())
        }
        Collector::Stuck | Collector::HangsUp => {
            let (listener, over) = (UnixListener::bind(&socket).unwrap(), Arc::new(AtomicBool::new(false)));
            listener.set_nonblocking(true).unwrap();
            let answering = thread::spawn({
                let over = Arc::clone(&over);
                move || answer_badly(&listener, collector, &over)
            });
            let outcome = run(command);
            over.store(true, Relaxed);
            answering.join().unwrap();
            std::fs::remove_file(socket).unwrap();
            (outcome, Vec::new())
        }
        Collector::Late => {
            let mut program = Program::start(command);
            until("the hook's thread, or the end of the program", || {
                (program.hook_threads() > 0 || !program.is_running()).then_some(())
            });
            let _listener = Listener::at(&socket);
            (program.end(), Vec::new())
        }
    }
}

fn answer_badly(listener: &UnixListener, collector: Collector, over: &AtomicBool) {
    let mut kept = Vec::new();
    while !over.load(Relaxed) {
        let Ok((mut connection, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        if collector == Collector::Stuck {
            kept.push(connection);
        } else {
            let _ = connection.read(&mut [0; 8]);
        }
    }
}
