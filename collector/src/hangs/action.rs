//! Runs the user's program for a hang, or for a rank's end.
//!
//! The command line goes to `sh -c` as the user wrote it, so it may be a pipe. Nothing from the job ever
//! becomes part of it: the document is on standard input, and the rest in variables.

use std::{
    collections::VecDeque,
    env,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;
use xpu_wire::{endpoint::variable, id::JobName};

use super::incident::Cause;
use crate::{exits::ChildTask, on_hang::HangAction};

/// Time limit of a program.
const LIMIT: Duration = Duration::from_mins(1);

/// Number of programs that run at the same time, and number that may wait.
const AT_ONCE: usize = 4;
const WAITING: usize = 64;

/// One run of a program.
#[derive(Debug)]
pub(super) struct Action {
    wish: HangAction,
    job: JobName,
    cause: Cause,
    /// Its standard input.
    document: Value,
    place: Option<PathBuf>,
}

impl Action {
    /// `None` if the job disables the program with an empty command line.
    pub(super) fn new(
        wish: &HangAction,
        job: &JobName,
        cause: Cause,
        document: Value,
        place: Option<&Path>,
    ) -> Option<Self> {
        let new =
            Self { wish: wish.clone(), job: job.clone(), cause, document, place: place.map(Path::to_owned) };
        (!new.wish.line.trim().is_empty()).then_some(new)
    }

    pub(super) fn document(&mut self) -> &mut Value {
        &mut self.document
    }

    fn start(&self, now: Instant) -> std::io::Result<ChildTask> {
        let folder = Some(&self.wish.folder).filter(|folder| folder.is_dir());
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(&self.wish.line)
            .current_dir(folder.map_or_else(|| Path::new("/"), PathBuf::as_path));
        command.env(variable::JOB, self.job.as_str());
        command.env("XPU_TOP_EVENT", if self.cause == Cause::Hang { "hang" } else { "exit" });
        if let Some(place) = &self.place {
            command.env("XPU_TOP_HANG_DIR", place);
        }
        // The hook does not watch processes that the program starts, and their ends start no program.
        for (name, _) in env::vars_os().filter(|(name, _)| name.as_bytes() == variable::ON_HANG.as_bytes()) {
            command.env_remove(name);
        }
        ChildTask::start(&mut command, format!("{:#}\n", self.document).as_bytes(), now + LIMIT)
    }

    fn name(&self) -> String {
        format!("{}: on-hang", self.job)
    }
}

/// The running and the waiting programs.
#[derive(Debug, Default)]
pub(super) struct Actions {
    waiting: VecDeque<Action>,
    running: Vec<(ChildTask, Action)>,
    /// Killed programs that are not gone yet.
    dying: Vec<ChildTask>,
}

impl Actions {
    pub(super) fn extend(&mut self, actions: impl IntoIterator<Item = Action>) {
        actions.into_iter().for_each(|action| self.take(action));
    }

    pub(super) fn take(&mut self, action: Action) {
        if self.waiting.len() < WAITING {
            self.waiting.push_back(action);
        } else {
            tracing::warn!(
                "{}: {WAITING} commands are already waiting; this command is dropped",
                action.name()
            );
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || !self.running.is_empty()
    }

    /// Takes finished programs, and starts waiting ones. Never waits.
    pub(super) fn turn(&mut self, now: Instant) {
        self.dying.retain_mut(|task| !task.is_gone());
        for (mut task, action) in std::mem::take(&mut self.running) {
            match task.turn(now) {
                Some(outcome) => {
                    outcome.log(&action.name(), LIMIT);
                    self.dying.extend((!task.is_gone()).then_some(task));
                }
                None => self.running.push((task, action)),
            }
        }
        while self.running.len() + self.dying.len() < AT_ONCE
            && let Some(action) = self.waiting.pop_front()
        {
            let name = action.name();
            match action.start(now) {
                Ok(task) => {
                    tracing::info!("{name}: runs {:?}", action.wish.line);
                    self.running.push((task, action));
                }
                Err(error) => tracing::warn!("{name}: cannot start /bin/sh: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn action(line: &str) -> Option<Action> {
        let wish = HangAction { line: line.to_owned(), folder: PathBuf::from("/none/there") };
        Action::new(&wish, &"a".into(), Cause::Hang, json!("$(touch no) `touch no`"), None)
    }

    fn done(mut actions: Actions) {
        while actions.is_busy() {
            actions.turn(Instant::now());
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_document_is_read_and_never_run() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("told");
        let mut actions = Actions::default();
        let line = format!("cat > '{}'; echo $XPU_TOP_EVENT $XPU_TOP_JOB >> '{0}'", output.display());
        actions.take(action(&line).unwrap());
        done(actions);
        let said = fs::read_to_string(output).unwrap();
        assert_eq!(said, "\"$(touch no) `touch no`\"\nhang a\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(action(" ").is_none(), "a job that wants none");
    }
}
