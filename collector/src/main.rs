//! `xpu-collector`: starts, reports that it is ready, serves, and exits on a signal.

mod args;
mod restart;

use std::{
    fs::File,
    io::Write as _,
    os::fd::FromRawFd as _,
    path::Path,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use clap::Parser as _;
use tracing_subscriber::EnvFilter;
use xpu_collector::{
    Collector, Hangs, HttpConfig, Recording, Relay, Server, Source, Upstream, prepare_memory, read_crash,
    read_gpu_core, read_stacks, sample_main_thread, sample_python, serve,
};
use xpu_model::figure::counted;
use xpu_wire::{id::Pid, unit::Moment};

use crate::args::{Args, ConfigError};

/// Interval at which the server of a recording's pages checks for a signal.
const LOOK: Duration = Duration::from_millis(100);

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_signal: libc::c_int) {
    STOP.store(true, Relaxed);
}

fn main() -> ExitCode {
    prepare_memory();
    let args = Args::parse();
    if let Some(pid) = args.read_stacks {
        let read = read_stacks(Pid(pid), args.native, args.gpus, &mut std::io::stdout());
        return read.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if let Some(pid) = args.sample_main_thread {
        let read = sample_main_thread(Pid(pid), &mut std::io::stdout());
        return read.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if let Some(pid) = args.sample_python {
        let (mut from, mut to) = (std::io::stdin(), std::io::stdout());
        let sampled = sample_python(Pid(pid), args.ledger, &mut from, &mut to);
        return sampled.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if args.read_crash {
        let read = read_crash(&mut std::io::stdin(), &mut std::io::stdout());
        return read.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if let Some(file) = &args.read_gpu_core {
        let read = read_gpu_core(file, &mut std::io::stdout());
        return read.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if args.print_token {
        return print_token(&args);
    }
    let filter = EnvFilter::try_from_env("XPU_TOP_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_env_filter(filter).init();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { libc::signal(signal, stop as *const () as libc::sighandler_t) };
    }
    if let Some(from) = &args.recording {
        return show(from, &args);
    }
    restart::on_crash("--ready-fd");
    let mut opened = args.http().and_then(|http| Ok((http, open(&args)?)));
    if restart::crashes() > 0 {
        tracing::warn!(
            "this is the start after {} in a row",
            counted(restart::crashes().into(), "crash", "crashes")
        );
        // A child process that is just starting may still hold the lock for a moment.
        let until = Instant::now() + Duration::from_secs(2);
        while matches!(&opened, Err(ConfigError::Open(error)) if error.is_served_already())
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(20));
            opened = args.http().and_then(|http| Ok((http, open(&args)?)));
        }
    }
    match opened {
        Ok((http, mut serving)) => {
            let _pages = http.and_then(|config| pages(serving.upstream(), config));
            let hangs = hangs(&args, serving.upstream());
            announce(args.ready_fd, "ready");
            let served = serving.serve().inspect_err(|error| tracing::error!("libzmq: {error}"));
            drop(hangs);
            drop(serving);
            // A thread may be inside the driver's library, whose destructors must not run meanwhile. SAFETY:
            // ends the process. Everything that outlives the process was saved above.
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

/// The service that this process runs until it is stopped.
enum Serving {
    Collector(Box<Collector>),
    Relay(Box<Relay>),
}

impl Serving {
    fn serve(&mut self) -> zmq::Result<()> {
        match self {
            Self::Collector(collector) => collector.serve(&STOP),
            Self::Relay(relay) => relay.serve(&STOP),
        }
    }

    fn upstream(&self) -> Upstream {
        match self {
            Self::Collector(collector) => collector.upstream(),
            Self::Relay(relay) => relay.upstream(),
        }
    }
}

fn open(args: &Args) -> Result<Serving, ConfigError> {
    let now = Moment::now();
    if args.relay {
        return Ok(Serving::Relay(Box::new(Relay::open(args.relay()?, now)?)));
    }
    Ok(Serving::Collector(Box::new(Collector::open(args.config()?, now)?)))
}

/// Serves the pages of a recording until a signal comes.
fn show(from: &Path, args: &Args) -> ExitCode {
    let served = args.http().map_err(|error| error.to_string()).and_then(|config| {
        let config = config.ok_or("--recording needs HTTP: leave out --no-http")?;
        let at = Moment(args.recorded_at.unwrap_or_default());
        let path = args.recorded_in.clone().unwrap_or_default();
        let recording = Recording::open(from, at, path).map_err(|error| error.to_string())?;
        serve(Source::Recording(Box::new(recording)), config).map_err(|error| error.to_string())
    });
    match served {
        Ok(_server) => {
            announce(args.ready_fd, "ready");
            while !STOP.load(Relaxed) {
                std::thread::sleep(LOOK);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the pages. Errors are only logged, because monitoring works without pages.
fn pages(upstream: Upstream, config: HttpConfig) -> Option<Server> {
    serve(Source::Live(upstream), config).inspect_err(|error| tracing::error!("no HTTP: {error}")).ok()
}

/// Starts the saving of hangs. Errors are only logged.
fn hangs(args: &Args, upstream: Upstream) -> Option<Hangs> {
    let config = args.hangs().inspect_err(|error| tracing::error!("hangs are not kept on disk: {error}"));
    Hangs::start(upstream, config.ok().flatten()?)
        .inspect_err(|error| tracing::error!("hangs are not kept on disk: {error}"))
        .ok()
}

fn print_token(args: &Args) -> ExitCode {
    match args.token() {
        Ok(Some(token)) => {
            println!("{token}");
            ExitCode::SUCCESS
        }
        Ok(None) => {
            eprintln!(
                "xpu-collector: there is no key, so HTTP needs no token; make one with `xpu-top keygen`"
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xpu-collector: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Reports the result of the start to the parent, and closes the descriptor.
fn announce(descriptor: Option<i32>, line: &str) {
    let Some(descriptor) = descriptor.filter(|&fd| fd > 2) else { return };
    // SAFETY: the command line hands the descriptor over to this process, and no other code here knows its
    // number.
    let mut to = unsafe { File::from_raw_fd(descriptor) };
    let _ = writeln!(to, "{line}");
}
