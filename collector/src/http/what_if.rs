//! Runs `xpu-top what-if --live` for each job whose ranks are all here, each in a separate process.

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, Read as _},
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use xpu_wire::{id::JobName, text};

use super::{
    api::{Answer, find, seen},
    app::App,
    capture::program,
    error::Problem,
};
use crate::what_if::JOBS;

/// Interval of checks for new jobs.
const LOOK: Duration = Duration::from_secs(2);

/// Longest line of the command: a document has a few kilobytes.
const LONGEST: u64 = 256 << 10;

/// The thread of one job, and when it was started.
struct Run {
    begun: Instant,
    thread: JoinHandle<()>,
}

/// Starts the command for each job. Runs as long as the process lives.
pub(super) fn run(app: &Arc<App>, every: Duration) {
    let mut runs: BTreeMap<JobName, Run> = BTreeMap::new();
    loop {
        // After a failed run, the next waits for the rest of the interval.
        runs.retain(|_, run| !run.thread.is_finished() || run.begun.elapsed() < every);
        for job in app.follow.look(|known| {
            let whole = known.jobs().iter().filter(|job| job.is_whole() && job.living() > 0);
            whole.map(|job| job.name().clone()).collect::<Vec<_>>()
        }) {
            if runs.len() < JOBS && !runs.contains_key(&job) {
                let (own, of) = (Arc::clone(app), job.clone());
                let begun =
                    thread::Builder::new().name("what-if".to_owned()).spawn(move || follow(&own, &of, every));
                match begun {
                    Ok(thread) => drop(runs.insert(job, Run { begun: Instant::now(), thread })),
                    Err(error) => tracing::warn!("{job}: no what-if: cannot start a thread: {error}"),
                }
            }
        }
        thread::sleep(LOOK);
    }
}

/// Runs the command until the job ends.
fn follow(app: &App, job: &JobName, every: Duration) {
    let Some(way) = &app.config.captures else { return };
    let Ok(program) = program() else {
        tracing::warn!(
            "{job}: no what-if: xpu-top is not in the directory of xpu-collector; install it completely"
        );
        return;
    };
    let mut command = way.command(&program, "what-if", job);
    command.args(["--live", "--json", "--every"]).arg(format!("{}s", every.as_secs()));
    if let Some(price) = app.config.pages.price {
        command.arg("--gpu-hour-price").arg(price.to_string());
    }
    match listen(app, job, &mut command) {
        Ok(said) if said.is_empty() => {}
        Ok(said) => tracing::warn!("{job}: what-if ended: {}", text::clean(&said)),
        Err(error) => tracing::warn!("{job}: no what-if: {error}"),
    }
}

/// Takes the documents in the command's output. Returns the last line that is not a document.
fn listen(app: &App, job: &JobName, command: &mut Command) -> io::Result<String> {
    let (pipe, end) = io::pipe()?;
    // The command has a group of its own: a signal to the collector's group does not stop it before it
    // removes its captures.
    command.stdout(end.try_clone()?).stderr(end).process_group(0);
    // SAFETY: prctl is async-signal-safe, has no precondition, and allocates no memory.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let mut child = command.spawn()?;
    // The command's copies of the descriptor would keep the pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (mut lines, mut said) = (BufReader::new(pipe), String::new());
    loop {
        let mut line = Vec::new();
        if lines.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&line);
        if !app.what_ifs.take(job, &line) {
            line.trim().chars().take(500).collect::<String>().clone_into(&mut said);
        }
    }
    child.wait()?;
    Ok(said)
}

pub(super) async fn show(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer {
    let named = name.clone();
    let found =
        seen(&app, move |known| find(known, Some(&named)).map(|job| (job.name().clone(), job.is_whole())));
    let (job, is_whole) = found.await?;
    if let Some(known) = app.what_ifs.of(&job) {
        return Ok(Json(known.document));
    }
    let (error, next) = if app.config.what_if_every.is_none() {
        (
            "what-if is off",
            "start the collector with XPU_TOP_WHAT_IF_EVERY=5m, or run `xpu-top what-if --live`",
        )
    } else if !is_whole {
        (
            "not all ranks of the job are here",
            "ask a relay that was started with XPU_TOP_WHAT_IF_EVERY=5m, or run `xpu-top what-if --live --job-hosts FILE`",
        )
    } else {
        ("no capture has ended yet", "ask again in a minute; the collector's log says why there is none")
    };
    Err(Problem::new(StatusCode::NOT_FOUND, error, next))
}
