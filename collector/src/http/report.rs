//! The report of a capture: what `xpu-top report` prints.

use std::{process::Stdio, sync::Arc};

use axum::{
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use tokio::process::Command;

use super::{
    app::App,
    capture::{Phase, program},
    error::Problem,
};

pub(super) async fn show(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, Problem> {
    let capture = app.captures.get(&id)?;
    if capture.state == Phase::Recording {
        let next = "ask again when GET /api/v1/capture reports it done";
        return Err(Problem::new(StatusCode::CONFLICT, "the capture is still running", next));
    }
    // It takes a processor for a while.
    let _turn = app.reports.try_lock().map_err(|_busy| {
        let next = "try again in a few seconds";
        Problem::new(StatusCode::CONFLICT, "another report is being made", next)
    })?;
    let mut command = Command::new(program()?);
    command.arg("report").arg(&capture.path).env_remove("LD_PRELOAD").stdin(Stdio::null()).kill_on_drop(true);
    let made = command.output().await.map_err(|error| failed(error.to_string()))?;
    if !made.status.success() {
        let said =
            String::from_utf8_lossy(&made.stderr).replace(&capture.path.display().to_string(), "the file");
        return Err(failed(said.trim().to_owned()));
    }
    let kind = "text/plain; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], made.stdout).into_response())
}

fn failed(why: String) -> Problem {
    Problem::new(StatusCode::CONFLICT, why, "fetch the file, and run `xpu-top report FILE`")
}
