//! `xpu-collector`: starts, says that it is ready, serves, ends when told to.

mod args;

use std::{
    fs::File,
    io::Write as _,
    os::fd::FromRawFd as _,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use clap::Parser as _;
use tracing_subscriber::EnvFilter;
use xpu_collector::{Collector, read_stacks};
use xpu_shared::{id::Pid, unit::Moment};

use crate::args::{Args, ConfigError};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_signal: libc::c_int) {
    STOP.store(true, Relaxed);
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(pid) = args.read_stacks {
        let read = read_stacks(Pid(pid), args.native, &mut std::io::stdout());
        return read.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let filter = EnvFilter::try_from_env("XPU_TOP_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_env_filter(filter).init();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { libc::signal(signal, stop as *const () as libc::sighandler_t) };
    }
    let opened = args.config().and_then(|config| Ok(Collector::open(config, Moment::now())?));
    match opened {
        Ok(mut collector) => {
            announce(args.ready_fd, "ready");
            let served = collector.serve(&STOP).inspect_err(|error| tracing::error!("libzmq: {error}"));
            drop(collector);
            // A thread may be inside of the driver's library: its destructors must not run beneath it.
            // SAFETY: ends the process; all that outlives it was put away just now.
            unsafe { libc::_exit(i32::from(served.is_err())) }
        }
        Err(ConfigError::Open(error)) if error.is_served_already() => {
            tracing::info!("{error}");
            announce(args.ready_fd, "ready");
            ExitCode::SUCCESS
        }
        Err(error) => {
            announce(args.ready_fd, &error.to_string());
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Tells who started this how it went, and lets go of the descriptor.
fn announce(descriptor: Option<i32>, line: &str) {
    let Some(descriptor) = descriptor.filter(|&fd| fd > 2) else { return };
    // SAFETY: whoever names a descriptor on the command line hands it over; nobody else here knows its number.
    let mut to = unsafe { File::from_raw_fd(descriptor) };
    let _ = writeln!(to, "{line}");
}
