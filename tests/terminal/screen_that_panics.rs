//! A screen that panics on SIGUSR1: in the thread that draws (`here`), or in another one.

use std::{env, process::ExitCode, thread};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use xpu_tui::watch::{WatchOptions, watch};

fn main() -> ExitCode {
    let here = env::args().nth(1).is_some_and(|place| place == "here");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let outcome = runtime.block_on(async {
        let (_nobody, arrivals) = mpsc::channel(1);
        let mut reported = signal(SignalKind::user_defined1()).expect("a signal");
        let fails = async {
            reported.recv().await;
            assert!(!here, "the thread that draws fails");
            let _ = thread::spawn(|| panic!("a thread beside it fails"));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            outcome = watch(arrivals, Vec::new(), WatchOptions::default()) => outcome,
            () = fails => Ok(()),
        }
    });
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("xpu-top: {error:#}");
    ExitCode::FAILURE
}
