//! Traces taken in the background, one at a time. A separate thread with its own connection to the collectors
//! takes each.

use std::path::{Path, PathBuf};

use xpu_wire::id::{JobName, Rank};

use super::{News, Outcome, Subject, Wanted, files, trace};
use crate::{
    background::Background,
    capture::Stop,
    follow::Following,
    live, new_file,
    screen_capture::{Targets, living},
};

/// Progress of the trace begun last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    #[default]
    None,
    UnderWay(String),
    Done(Outcome),
    Failed(String),
}

impl Standing {
    pub fn is_under_way(&self) -> bool {
        matches!(self, Self::UnderWay(_))
    }
}

#[derive(Debug)]
pub struct Tracer {
    targets: Targets,
    work: Background<Standing>,
}

impl Tracer {
    pub fn new(targets: Targets) -> Self {
        Self { targets, work: Background::default() }
    }

    pub fn is_tracing(&self) -> bool {
        self.work.is_running()
    }

    /// Ends the trace under way, and keeps the traces that have arrived.
    pub fn end(&self) {
        self.work.end();
    }

    /// Traces these ranks of a job, or all living ranks, into a folder. `heard` gets each message.
    pub fn begin(
        &mut self,
        job: JobName,
        ranks: Option<Vec<Rank>>,
        folder: PathBuf,
        wanted: Wanted,
        mut heard: impl FnMut(News) + Send + 'static,
    ) {
        let targets = self.targets.clone();
        self.work.begin(Standing::UnderWay("asking the ranks".to_owned()), move |state, stop| {
            let mut report = |news: News| {
                if let News::Line(line) = &news {
                    state.set(Standing::UnderWay(line.clone()));
                }
                heard(news);
            };
            match take(targets, job, ranks, &folder, wanted, stop, &mut report) {
                Ok(outcome) => Standing::Done(outcome),
                Err(why) => Standing::Failed(format!("no traces: {why:#}")),
            }
        });
    }

    pub fn standing(&self) -> Standing {
        self.work.state()
    }
}

fn take(
    targets: Targets,
    job: JobName,
    ranks: Option<Vec<Rank>>,
    folder: &Path,
    wanted: Wanted,
    stop: Stop,
    report: &mut dyn FnMut(News),
) -> anyhow::Result<Outcome> {
    let mut following = Following::new(targets.endpoints.iter().cloned(), Some(job.clone()));
    let (live, mut arrivals) = live::connect_briefly(targets.endpoints, targets.key, Some(job.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let all = living(&mut following, &mut arrivals, &job).await;
        let ranks = ranks.unwrap_or(all);
        anyhow::ensure!(!ranks.is_empty(), "no rank of {job} is alive");
        new_file::check_absent(files(folder, &ranks))?;
        trace(folder, Subject { job, ranks, following, arrivals, live }, wanted, stop, report).await
    })
}
