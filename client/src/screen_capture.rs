//! Captures started from the screen, one at a time. A separate thread with its own connection to the
//! collectors takes each.

use std::{path::PathBuf, time::Duration};

use tokio::time::{Instant, timeout_at};
use xpu_model::finding;
use xpu_net::key::Key;
use xpu_recording::SealedBlock;
use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};

use crate::{
    arrival::{Arrivals, Endpoint},
    background::Background,
    capture::{Begin, CaptureEvent, Outcome, Plan, Progress, Request, Stop, Taking, Wanted},
    follow::Following,
    live,
    recording_writer::header,
};

/// Steps that a key captures, and earlier steps that the file includes.
pub const STEPS: u32 = 3;
pub const STEPS_BEFORE: u32 = 20;

/// Time limits for hosts to list their jobs, and for a whole capture.
const LOOK: Duration = Duration::from_secs(5);
const WAIT: Duration = Duration::from_mins(2);

/// Progress of the capture begun last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CaptureState {
    #[default]
    None,
    /// The hosts are asked for their jobs.
    Beginning,
    UnderWay(Progress),
    Done(Outcome),
    Failed(String),
}

impl CaptureState {
    pub fn is_under_way(&self) -> bool {
        matches!(self, Self::Beginning | Self::UnderWay(_))
    }
}

/// The hosts, and the key to them.
#[derive(Clone, Debug)]
pub struct Targets {
    pub endpoints: Vec<Endpoint>,
    pub key: Option<Key>,
}

#[derive(Debug)]
pub struct Capturer {
    targets: Targets,
    work: Background<CaptureState>,
}

impl Capturer {
    pub fn new(targets: Targets) -> Self {
        Self { targets, work: Background::default() }
    }

    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// Whether a capture is under way.
    pub fn is_capturing(&self) -> bool {
        self.work.is_running()
    }

    /// Ends the capture under way, and keeps its data so far.
    pub fn end(&self) {
        self.work.end();
    }

    /// Captures the next steps of all ranks, or the given extent; the file begins with the frames `before`.
    pub fn begin(&mut self, job: JobName, path: PathBuf, wanted: Option<Wanted>, before: Vec<SealedBlock>) {
        let targets = self.targets.clone();
        self.work.begin(CaptureState::Beginning, move |state, stop| {
            let mut report = |news| {
                if let CaptureEvent::Far(progress) = news {
                    state.set(CaptureState::UnderWay(progress));
                }
            };
            let wanted = wanted.unwrap_or(Wanted::Steps(STEPS));
            match take(targets, job, path, wanted, before, stop, &mut report) {
                Ok(outcome) => CaptureState::Done(outcome),
                Err(why) => CaptureState::Failed(format!("not captured: {why:#}")),
            }
        });
    }

    pub fn state(&self) -> CaptureState {
        self.work.state()
    }
}

fn take(
    targets: Targets,
    job: JobName,
    path: PathBuf,
    what: Wanted,
    before: Vec<SealedBlock>,
    stop: Stop,
    report: &mut dyn FnMut(CaptureEvent),
) -> anyhow::Result<Outcome> {
    let header = header(Some(&job), &targets.endpoints);
    let mut following = Following::new(targets.endpoints.iter().cloned(), Some(job.clone()));
    let heard = before.first().map_or(Duration::ZERO, |block| Moment::now().since(block.entry.first));
    following.remember(before);
    let (live, mut arrivals) = live::connect_briefly(targets.endpoints, targets.key, Some(job.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ranks = living(&mut following, &mut arrivals, &job).await;
        anyhow::ensure!(!ranks.is_empty(), "no rank of {job} is alive");
        let plan = Plan {
            what,
            begin: Begin::Soon,
            before: match what {
                Wanted::Steps(_) => STEPS_BEFORE,
                Wanted::Time(_) => 0,
            },
            activity: false,
            functions: true,
            functions_only: false,
            python: None,
            wait: match what {
                Wanted::Steps(_) => WAIT,
                Wanted::Time(length) => WAIT + length,
            },
            watch: heard < Duration::from_secs(finding::WATCHED.into()),
        };
        let request = Request { path: &path, header: &header, job, ranks, plan, stop };
        let taking = Taking::begin(request, &mut following, &live, report)?;
        taking.take(&mut arrivals).await
    })
}

/// The living ranks, once all hosts have answered or the time for that is over.
pub(crate) async fn living(following: &mut Following, arrivals: &mut Arrivals, job: &JobName) -> Vec<Rank> {
    await_hosts(following, arrivals).await;
    let ranks = following.jobs().get(job).into_iter().flat_map(xpu_model::job::Job::processes);
    ranks.filter(|(_, view)| view.is_alive()).map(|(rank, _)| rank).collect()
}

/// Waits until all hosts have answered or the time for that is over.
pub(crate) async fn await_hosts(following: &mut Following, arrivals: &mut Arrivals) {
    let deadline = Instant::now() + LOOK;
    while !following.is_complete() {
        match timeout_at(deadline, arrivals.recv()).await {
            Ok(Some(arrival)) => following.take(arrival),
            Ok(None) | Err(_) => break,
        }
    }
}
