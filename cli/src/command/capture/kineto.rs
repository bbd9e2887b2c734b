//! PyTorch's profiler, run together with a capture. The profiler needs longer to start, so the ranks agree on
//! its steps first.

use std::{
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use xpu_client::{
    capture::{Begin, Stop, Wanted},
    kineto::{self, News, Standing, Tracer},
    screen_capture::Targets,
};
use xpu_wire::{
    frame::KinetoWindow,
    id::{JobName, Rank},
};

use crate::args::CaptureArgs;

/// Interval of checks whether the user has ended the capture.
const LOOK: Duration = Duration::from_millis(50);

/// The folder of a capture's traces, next to the capture's file.
pub(in crate::command) fn folder(capture: &Path) -> PathBuf {
    let mut name = capture.as_os_str().to_owned();
    name.push(".kineto");
    name.into()
}

pub(super) struct Beside {
    tracer: Tracer,
    window: Option<KinetoWindow>,
}

impl Beside {
    /// Starts the traces, and waits until all ranks agree on the window or cannot.
    pub(super) async fn begin(
        args: &CaptureArgs,
        job: &JobName,
        ranks: &[Rank],
        what: Wanted,
        stop: &Stop,
    ) -> anyhow::Result<Self> {
        let targets = Targets { endpoints: args.of.hosts()?.endpoints, key: args.of.connection.key()? };
        let mut tracer = Tracer::new(targets);
        // tracer --News--> here
        let (news, mut heard) = mpsc::unbounded_channel();
        let wanted = match what {
            Wanted::Steps(steps) => kineto::Wanted { steps: Some(steps), ..kineto::Wanted::default() },
            Wanted::Time(length) => kineto::Wanted { duration: Some(length), ..kineto::Wanted::default() },
        };
        let report = move |item: News| {
            if let News::Line(line) = &item {
                eprintln!("xpu-top: Kineto: {line}");
            }
            // The receiver is gone once the window is planned.
            let _ = news.send(item);
        };
        tracer.begin(job.clone(), Some(ranks.to_vec()), folder(&args.output), wanted, report);
        let window = loop {
            match timeout(LOOK, heard.recv()).await {
                Ok(Some(News::Planned(window))) => break Some(window),
                Ok(Some(News::Line(_))) => {}
                Ok(None) => break None,
                Err(_nothing_yet) if stop.load(Relaxed) => tracer.end(),
                Err(_nothing_yet) => {}
            }
        };
        Ok(Self { tracer, window })
    }

    /// The start of the capture: the first step or the first moment of the traces.
    pub(super) fn when(&self) -> Begin {
        match self.window {
            Some(KinetoWindow::Steps { first, .. }) => Begin::Step(first),
            Some(KinetoWindow::Time { at, .. }) => Begin::At(at),
            None => Begin::Soon,
        }
    }

    /// Waits for the traces and reports the result. Returns whether all arrived.
    pub(super) async fn end(&mut self, stop: &Stop) -> bool {
        while self.tracer.is_tracing() {
            if stop.swap(false, Relaxed) {
                self.tracer.end();
            }
            sleep(LOOK).await;
        }
        match self.tracer.standing() {
            Standing::Done(outcome) => {
                outcome.complaints.iter().for_each(|line| eprintln!("xpu-top: Kineto: {line}"));
                println!("{}", outcome.summary);
                outcome.is_whole
            }
            Standing::Failed(why) => {
                eprintln!("xpu-top: Kineto: {why}");
                false
            }
            Standing::None | Standing::UnderWay(_) => false,
        }
    }
}
