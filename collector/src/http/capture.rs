//! Captures requested over HTTP: `xpu-top capture`, as a separate process, into a folder that only its owner
//! can read.
//!
//! This program chooses a capture's name and path: no path of a request is ever used.

mod wanted;

use std::{
    collections::BTreeMap,
    env, fs,
    io::Read as _,
    net::IpAddr,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use axum::{
    Json,
    body::Body,
    extract::{Path as InPath, State, rejection::JsonRejection},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde::Serialize;
use serde_json::{Value, json};
use xpu_wire::{
    endpoint::{BasePort, variable},
    id::{JobName, Rank},
};

use super::{
    api::{Answer, body, chosen, find, seen},
    app::{App, run_blocking},
    error::Problem,
};
use crate::metrics::Dump;
pub(super) use wanted::Wanted;
pub(super) use wanted::Window;

/// Number of captures kept. Beyond it, the oldest is removed.
const KEPT: usize = 16;

/// The largest file that is sent whole: the file is in memory meanwhile.
const LARGEST: u64 = 256 << 20;

/// Bytes of the command's output that are kept.
const WORDS: u64 = 4096;

/// How a capture connects to the collector.
#[derive(Clone, Debug)]
pub struct CaptureWay {
    pub address: IpAddr,
    pub base: BasePort,
    pub key: KeyWay,
    /// The folder of the captures.
    pub directory: PathBuf,
}

impl CaptureWay {
    /// A command of `xpu-top` for a job of this collector.
    pub(super) fn command(&self, program: &Path, word: &str, job: &JobName) -> Command {
        let mut command = Command::new(program);
        let is_any = self.address.is_unspecified();
        let address = if is_any { "127.0.0.1".to_owned() } else { self.address.to_string() };
        command.arg(word).arg("--hosts").arg(address).arg("--base-port").arg(self.base.0.to_string());
        command.arg("--job").arg(job.as_str());
        match &self.key {
            KeyWay::Usual => {}
            KeyWay::Named(path) => {
                command.arg("--key-file").arg(path);
            }
            // A configuration folder that has no key.
            KeyWay::None => {
                command.env_remove(variable::KEY_FILE).env("XDG_CONFIG_HOME", "/nonexistent");
            }
        }
        command.env_remove("LD_PRELOAD").stdin(Stdio::null());
        command
    }
}

/// The key of a capture.
#[derive(Clone, Debug)]
pub enum KeyWay {
    /// The user's default key.
    Usual,
    Named(PathBuf),
    None,
}

/// The kind of result: a capture, or traces by PyTorch's profiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum What {
    #[default]
    Capture,
    Kineto,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            Self::Capture => "capture",
            Self::Kineto => "kineto",
        }
    }

    /// The path of the capture's file, or of the traces' folder.
    fn path(self, directory: &Path, id: u64) -> PathBuf {
        match self {
            Self::Capture => directory.join(format!("{id}.xpu")),
            Self::Kineto => directory.join(format!("{id}.kineto")),
        }
    }

    fn remove(self, path: &Path) {
        let _ = match self {
            Self::Capture => fs::remove_file(path),
            Self::Kineto => fs::remove_dir_all(path),
        };
    }
}

#[derive(Debug, Default)]
pub(super) struct Captures {
    what: What,
    all: Mutex<BTreeMap<u64, Capture>>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Capture {
    pub(super) id: u64,
    job: JobName,
    #[serde(flatten)]
    window: Window,
    pub(super) state: Phase,
    /// The command's output.
    said: String,
    bytes: Option<u64>,
    #[serde(skip)]
    pub(super) path: PathBuf,
}

impl Capture {
    /// The captured steps of a recording.
    pub(super) fn recorded(job: JobName, window: Window, path: &Path) -> Self {
        let (state, said) = (Phase::Done, String::new());
        Self { id: 1, job, window, state, said, bytes: written(path), path: path.to_owned() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    Recording,
    Done,
    /// Some ranks are missing in the file.
    Partial,
    Failed,
}

impl Captures {
    pub(super) fn of(what: What) -> Self {
        Self { what, all: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Capture>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_recording(&self) -> bool {
        self.lock().values().any(|capture| capture.state == Phase::Recording)
    }
}

pub(super) async fn begin(
    State(app): State<Arc<App>>,
    wanted: Result<Json<Wanted>, JsonRejection>,
) -> Result<Response, Problem> {
    let begun = start(&app, body(wanted)?, Duration::ZERO).await?;
    Ok((StatusCode::ACCEPTED, Json(begun)).into_response())
}

/// Starts a capture after a delay.
pub(super) async fn start(app: &Arc<App>, wanted: Wanted, after: Duration) -> Result<Value, Problem> {
    app.upstream()?;
    let window = wanted.window()?;
    let named = wanted.job.clone();
    let ranks = wanted.ranks.clone();
    let (job, ranks) = seen(app, move |known| {
        let job = find(known, named.as_deref())?;
        Ok((
            job.name().clone(),
            if ranks.is_empty() {
                ranks.into_iter().map(Rank).collect()
            } else {
                chosen(job, &ranks, false)?
            },
        ))
    })
    .await?;
    let way = app.config.captures.clone().ok_or_else(|| {
        let next = "ask the collector of the ranks' host, or run `xpu-top capture`";
        Problem::new(StatusCode::NOT_IMPLEMENTED, "a relay cannot capture", next)
    })?;
    let program = program()?;
    let capture = app.captures.make(&way, &job, window)?;
    app.own.dumps(Dump::Making);
    let answer = document(&capture);
    let arguments = wanted.arguments(capture.window);
    let command = command(&program, &way, What::Capture, &capture, arguments, &ranks);
    let (making, id) = (Arc::clone(app), capture.id);
    let spawned = thread::Builder::new().name("capture".to_owned()).spawn(move || {
        thread::sleep(after);
        making.captures.run(command, &capture);
        making.own.dumps(Dump::Done);
    });
    spawned.map_err(|error| {
        app.own.dumps(Dump::None);
        app.captures.fail(id, format!("cannot start a thread: {error}"));
        let next = "raise `ulimit -u`, and try again";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot start a thread: {error}"), next)
    })?;
    Ok(answer)
}

/// `xpu-top`, in the folder of this program.
pub(super) fn program() -> Result<PathBuf, Problem> {
    let here = env::current_exe().ok().and_then(|path| path.parent().map(Path::to_owned));
    here.map(|folder| folder.join("xpu-top")).filter(|path| path.is_file()).ok_or_else(|| {
        let next = "install xpu-top completely, or run `xpu-top capture` elsewhere";
        Problem::new(StatusCode::NOT_IMPLEMENTED, "xpu-top is not in the directory of xpu-collector", next)
    })
}

/// A command of `xpu-top` for a job and some of its ranks.
pub(super) fn command(
    program: &Path,
    way: &CaptureWay,
    what: What,
    capture: &Capture,
    arguments: Vec<String>,
    ranks: &[Rank],
) -> Command {
    let mut command = way.command(program, what.word(), &capture.job);
    command.args(arguments);
    if !ranks.is_empty() {
        let ranks: Vec<_> = ranks.iter().map(ToString::to_string).collect();
        command.arg("--ranks").arg(ranks.join(","));
    }
    command.arg("-o").arg(&capture.path).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn document(capture: &Capture) -> Value {
    let mut value = json!(capture);
    if capture.state != Phase::Recording {
        value["file"] = json!(format!("/api/v1/capture/{}/file", capture.id));
    }
    value
}

impl Captures {
    pub(super) fn make(&self, way: &CaptureWay, job: &JobName, window: Window) -> Result<Capture, Problem> {
        let mut captures = self.lock();
        if captures.values().any(|capture| capture.state == Phase::Recording) {
            let word = self.what.word();
            let next = format!("GET /api/v1/{word} shows its progress; ask again when it is done");
            return Err(Problem::new(StatusCode::CONFLICT, "one is already running", next));
        }
        let directory = &way.directory;
        fs::DirBuilder::new().mode(0o700).recursive(true).create(directory).map_err(|error| {
            let error = format!("cannot make {}: {error}", directory.display());
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, error, "free space there, and try again")
        })?;
        while captures.len() >= KEPT {
            if let Some((_, oldest)) = captures.pop_first() {
                self.what.remove(&oldest.path);
            }
        }
        let id = captures.last_key_value().map_or(1, |(id, _)| id + 1);
        let path = self.what.path(directory, id);
        // A file of this name may be left from an earlier collector.
        self.what.remove(&path);
        let (state, said) = (Phase::Recording, String::new());
        let capture = Capture { id, job: job.clone(), window, state, said, bytes: None, path };
        captures.insert(id, capture.clone());
        Ok(capture)
    }

    pub(super) fn run(&self, mut command: Command, capture: &Capture) {
        let ended = command.output();
        let (state, said) = match ended {
            Ok(output) => {
                let mut said = String::new();
                let words = output.stderr.chain(&output.stdout[..]);
                let _ = std::io::Read::take(words, WORDS).read_to_string(&mut said);
                let state = match output.status.code() {
                    Some(0) => Phase::Done,
                    Some(1) => Phase::Partial,
                    _ => Phase::Failed,
                };
                (state, said)
            }
            Err(error) => (Phase::Failed, error.to_string()),
        };
        let bytes = written(&capture.path);
        if let Some(known) = self.lock().get_mut(&capture.id) {
            // Clients do not see the path.
            let what = if capture.path.is_dir() { "the folder" } else { "the file" };
            let said = said.replace(&capture.path.display().to_string(), what);
            said.trim().clone_into(&mut known.said);
            (known.state, known.bytes) = (state, bytes);
        }
    }

    /// Adds a capture that was made elsewhere.
    pub(super) fn hold(&self, capture: Capture) {
        self.lock().insert(capture.id, capture);
    }

    /// Marks a capture that could not be started as failed.
    pub(super) fn fail(&self, id: u64, why: String) {
        if let Some(known) = self.lock().get_mut(&id) {
            (known.state, known.said) = (Phase::Failed, why);
        }
    }

    pub(super) fn all(&self) -> Vec<Capture> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn get(&self, id: &str) -> Result<Capture, Problem> {
        let capture = id.parse().ok().and_then(|id: u64| self.lock().get(&id).cloned());
        capture.ok_or_else(|| {
            let word = self.what.word();
            let next = format!("GET /api/v1/{word} lists them; the last {KEPT} are kept");
            Problem::new(StatusCode::NOT_FOUND, format!("no such {word}"), next)
        })
    }
}

pub(super) async fn list(State(app): State<Arc<App>>) -> Answer {
    let all: Vec<_> = app.captures.lock().values().map(document).collect();
    Ok(Json(json!({ "captures": all })))
}

pub(super) async fn show(State(app): State<Arc<App>>, InPath(id): InPath<String>) -> Answer {
    Ok(Json(document(&app.captures.get(&id)?)))
}

pub(super) async fn file(
    State(app): State<Arc<App>>,
    InPath(id): InPath<String>,
) -> Result<Response, Problem> {
    let capture = app.captures.get(&id)?;
    if capture.state == Phase::Recording {
        let next = "ask again when GET /api/v1/capture reports it done";
        return Err(Problem::new(StatusCode::CONFLICT, "the capture is still running", next));
    }
    if capture.bytes.is_some_and(|bytes| bytes > LARGEST) {
        let next = "request fewer steps or ranks, or run `xpu-top capture`";
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the capture is too large to send", next));
    }
    let path = capture.path.clone();
    let read = run_blocking(move || fs::read(path)).await?;
    let bytes = read.map_err(|_gone| {
        Problem::new(StatusCode::GONE, "nothing was written, or the file is gone", "request another capture")
    })?;
    let name = format!("attachment; filename=\"capture-{}.xpu\"", capture.id);
    let headers =
        [(header::CONTENT_TYPE, "application/octet-stream".to_owned()), (header::CONTENT_DISPOSITION, name)];
    Ok((headers, Body::from(bytes)).into_response())
}

/// Bytes of a file, or of the files in a folder.
fn written(path: &Path) -> Option<u64> {
    let found = fs::metadata(path).ok()?;
    if !found.is_dir() {
        return Some(found.len());
    }
    let files = fs::read_dir(path).ok()?.flatten();
    Some(files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_that_could_not_begin_does_not_block_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let way = CaptureWay {
            address: IpAddr::from([127, 0, 0, 1]),
            base: BasePort::DEFAULT,
            key: KeyWay::None,
            directory: dir.path().to_owned(),
        };
        let (captures, job) = (Captures::default(), JobName::from("train"));
        let first = captures.make(&way, &job, Window::Steps(3)).unwrap();
        assert!(captures.is_recording() && captures.make(&way, &job, Window::Steps(3)).is_err());
        captures.fail(first.id, "cannot start a thread".to_owned());
        assert!(!captures.is_recording() && captures.make(&way, &job, Window::Steps(3)).is_ok());
        assert_eq!(captures.get("1").unwrap().state, Phase::Failed);
    }
}
