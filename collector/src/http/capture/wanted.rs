//! The content of a request for a capture: steps or a period, and options.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use xpu_wire::frame::{CaptureOrder, CaptureWindow, SampleOrder};

use crate::http::error::Problem;

/// Largest number of steps before the requested ones, as in the command.
const BEFORE: u32 = 64;

/// Time limit in seconds. For a period, the limit is this much longer than the period.
const WAIT: u64 = 120;

/// Number of steps, or milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::http) enum Window {
    Steps(u32),
    ForMs(u64),
    /// A period in milliseconds, for PyTorch's profiler.
    DurationMs(u64),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Wanted {
    pub(super) job: Option<String>,
    steps: Option<u32>,
    /// A period instead of steps.
    for_ms: Option<u64>,
    #[serde(default)]
    pub(super) ranks: Vec<u32>,
    #[serde(default)]
    before: u32,
    /// All kernels, through CUPTI.
    #[serde(default)]
    kernels: bool,
    /// Whether Python functions are left out.
    #[serde(default)]
    light: bool,
    /// Python's stacks, sampled this often per second.
    python_hz: Option<u32>,
    /// Whether Python's stacks have native frames.
    #[serde(default)]
    native: bool,
    /// Whether the capture ends as soon as it has the steps, without watching for stragglers.
    #[serde(default)]
    no_watch: bool,
}

impl Wanted {
    /// A request for steps without options.
    pub(in crate::http) fn plain(job: Option<String>, steps: u32) -> Self {
        Self {
            job,
            steps: Some(steps),
            for_ms: None,
            ranks: Vec::new(),
            before: 0,
            kernels: false,
            light: false,
            python_hz: None,
            native: false,
            no_watch: true,
        }
    }

    pub(super) fn window(&self) -> Result<Window, Problem> {
        if self.python_hz.is_some_and(|rate| !(1..=SampleOrder::RATE).contains(&rate)) {
            let next = format!("\"python_hz\" is 1 to {}", SampleOrder::RATE);
            let what = "stacks cannot be sampled at that rate";
            return Err(Problem::new(StatusCode::BAD_REQUEST, what, next));
        }
        let (most, longest) = (CaptureOrder::STEPS, CaptureWindow::LONGEST.as_millis() as u64);
        let (what, next) = match (self.steps, self.for_ms) {
            (Some(steps), None) if (1..=most).contains(&steps) && self.before <= BEFORE => {
                return Ok(Window::Steps(steps));
            }
            (None, Some(time)) if (1..=longest).contains(&time) && self.before == 0 => {
                return Ok(Window::ForMs(time));
            }
            (Some(_), None) => (
                "that many steps cannot be captured",
                format!("request 1 to {most} steps, and at most {BEFORE} before them"),
            ),
            (None, Some(_)) => (
                "that period cannot be captured",
                format!("request 1 to {longest} milliseconds, without steps before"),
            ),
            _ => (
                "a capture covers either steps or a period",
                "name one: \"steps\": 3, or \"for_ms\": 500".to_owned(),
            ),
        };
        Err(Problem::new(StatusCode::BAD_REQUEST, what, next))
    }

    /// The request as arguments of the command.
    pub(super) fn arguments(&self, window: Window) -> Vec<String> {
        let mut all = match window {
            Window::Steps(steps) => vec![format!("--steps={steps}"), format!("--before={}", self.before)],
            Window::ForMs(time) | Window::DurationMs(time) => vec![format!("--for={time}ms")],
        };
        let meanwhile = match window {
            Window::Steps(_) => 0,
            Window::ForMs(time) | Window::DurationMs(time) => time.div_ceil(1000),
        };
        all.push(format!("--wait={}", WAIT + meanwhile));
        all.extend(self.python_hz.map(|rate| format!("--python={rate}")));
        let flags = [
            ("--native", self.native && self.python_hz.is_some()),
            ("--kernels", self.kernels),
            ("--light", self.light),
            ("--no-watch", self.no_watch),
        ];
        all.extend(flags.into_iter().filter(|(_, wanted)| *wanted).map(|(flag, _)| flag.to_owned()));
        all
    }
}
