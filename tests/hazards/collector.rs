//! Runs a program while its collector is in a given bad state.

use std::{
    io::Read as _,
    os::unix::net::UnixListener,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use xpu_tests::{
    listener::{AtFirstWord, Listener, Sender},
    place::Place,
    program::{Program, until},
};

use crate::end::End;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collector {
    Absent,
    Listens,
    /// Ends at the first message, and removes its socket.
    Dies,
    /// Accepts connections and never reads from them, like a stopped process.
    Stuck,
    /// Closes each connection during its first bytes.
    HangsUp,
    /// Starts only after the hook has begun to look for it.
    Late,
}

/// Runs the command with this collector. Returns what a listening collector received.
#[track_caller]
pub(crate) fn under(collector: Collector, place: &Place, command: &mut Command) -> (End, Vec<Sender>) {
    let socket = place.socket();
    match collector {
        Collector::Absent => (End::of(command, false), Vec::new()),
        Collector::Listens => {
            let listener = Listener::at(&socket);
            let end = End::of(command, true);
            // The last message may still be on its way.
            let all_said = || listener.received().iter().all(|sender| sender.goodbye).then_some(());
            let has_exited = end.outcome.as_ref().is_some_and(|outcome| outcome.status.code().is_some());
            if has_exited && !listener.received().is_empty() {
                let patience = Instant::now() + Duration::from_secs(2);
                until("a goodbye, or that there is none", || {
                    all_said().or_else(|| (Instant::now() > patience).then_some(()))
                });
            }
            (end, listener.received())
        }
        Collector::Dies => {
            let _listener = Listener::that(AtFirstWord::Dies, &socket);
            (End::of(command, false), Vec::new())
        }
        Collector::Stuck | Collector::HangsUp => {
            let (listener, over) = (UnixListener::bind(&socket).unwrap(), Arc::new(AtomicBool::new(false)));
            listener.set_nonblocking(true).unwrap();
            let answering = thread::spawn({
                let over = Arc::clone(&over);
                move || answer_badly(&listener, collector, &over)
            });
            let end = End::of(command, false);
            over.store(true, Relaxed);
            answering.join().unwrap();
            std::fs::remove_file(socket).unwrap();
            (end, Vec::new())
        }
        Collector::Late => {
            let mut program = Program::start(command);
            until("the hook's thread, or the end of the program", || {
                (program.hook_threads() > 0 || !program.is_running()).then_some(())
            });
            let _listener = Listener::at(&socket);
            (End::of_program(program, false), Vec::new())
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
