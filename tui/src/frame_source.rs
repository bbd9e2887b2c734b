//! The source of the screen's frames: a live job, its last minutes, or a file.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use xpu_client::{
    arrival::Arrival,
    capture::Wanted,
    follow::LATELY,
    kineto::{self, Tracer},
    live::{Live, WatchedRanks},
    recording_writer,
    screen_capture::Capturer,
};
use xpu_model::{figure, job::Job};
use xpu_recording::{FrameCursor, Header};
use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};

use crate::{
    action::Action,
    app::App,
    playback::{Of, Playback},
    recorder::Recorder,
    replay::{Player, Search},
    update::update,
};

/// A recording to replay instead of a job.
#[derive(Debug)]
pub struct Replayed {
    pub cursor: FrameCursor,
    /// The moment at which the replay begins.
    pub begin: Option<Moment>,
}

#[derive(Debug)]
pub(crate) struct FrameSource {
    live: Option<Live>,
    recorder: Option<Recorder>,
    capturer: Option<Capturer>,
    tracer: Option<Tracer>,
    player: Option<Player>,
    watched: Option<WatchedRanks>,
}

impl FrameSource {
    pub(crate) fn new(
        live: Option<Live>,
        capturer: Option<Capturer>,
        replayed: Option<Replayed>,
        app: &mut App,
    ) -> anyhow::Result<Self> {
        let recorder = live.is_some().then(Recorder::start);
        let tracer = capturer.as_ref().map(|capturer| Tracer::new(capturer.targets().clone()));
        let mut new = Self { live, recorder, capturer, tracer, player: None, watched: None };
        if let Some(Replayed { cursor, begin }) = replayed {
            // Two readers: the screen, and the search for findings.
            let search = cursor.again();
            app.replay(Playback::new(Of::File, cursor.span()));
            let mut player = Player::new(cursor, Search::begin(search), Instant::now());
            let begin = app.playback().map(|playback| playback.within(begin.unwrap_or_default()));
            player.rewind(app, begin.unwrap_or_default())?;
            new.player = Some(player);
        }
        Ok(new)
    }

    pub(crate) fn live(&self) -> Option<&Live> {
        self.live.as_ref()
    }

    /// Keeps the received frames of a live job.
    pub(crate) fn keep(&mut self, arrival: &Arrival) {
        if let (Some(recorder), Arrival::Frame(frame)) = (&mut self.recorder, arrival) {
            recorder.take(Moment::now(), frame);
        }
    }

    /// Updates the app's state of the recorder and the capture.
    pub(crate) fn update_app(&self, app: &mut App) {
        if let Some(recorder) = &self.recorder {
            update(app, Action::Recorded(recorder.state()));
        }
        if let Some(capturer) = &self.capturer {
            update(app, Action::Captured(capturer.state()));
        }
        if let Some(tracer) = &self.tracer {
            update(app, Action::Traced(tracer.standing()));
        }
    }

    pub(crate) fn plays(&self) -> bool {
        self.player.is_some()
    }

    /// `true` if the shown state changed.
    pub(crate) fn advance(&mut self, app: &mut App) -> anyhow::Result<bool> {
        match &mut self.player {
            Some(player) => Ok(player.advance(app, Instant::now())?),
            None => Ok(false),
        }
    }

    pub(crate) fn seek(&mut self, app: &mut App, to: Moment) -> anyhow::Result<()> {
        match &mut self.player {
            Some(player) => Ok(player.seek(app, to)?),
            None => Ok(()),
        }
    }

    pub(crate) fn step(&mut self, app: &mut App) -> anyhow::Result<()> {
        match &mut self.player {
            Some(player) => Ok(player.step(app)?),
            None => Ok(()),
        }
    }

    pub(crate) fn watch_ranks(&mut self, app: &mut App, watched: Option<WatchedRanks>) -> anyhow::Result<()> {
        if let Some(live) = &self.live {
            live.watch_ranks(watched.clone());
        }
        self.watched = watched;
        let ranks = self.watched_ranks();
        if let Some(player) = &mut self.player {
            player.watch_ranks(app, ranks)?;
        }
        Ok(())
    }

    fn watched_ranks(&self) -> BTreeSet<Rank> {
        self.watched.iter().flat_map(|watched| &watched.ranks).copied().collect()
    }

    /// Shows the last minutes of a running job, from `by` ago on.
    pub(crate) fn look_back(&mut self, app: &mut App, by: Duration) -> anyhow::Result<()> {
        let Some(recorder) = &self.recorder else { return Ok(()) };
        // Nothing has arrived yet, so there is no past.
        let Ok(recording) = recorder.past(header(app)) else { return Ok(()) };
        let cursor = FrameCursor::new(recording);
        let search = cursor.again();
        app.replay(Playback::new(Of::Live, cursor.span()));
        let mut player = Player::new(cursor, Search::begin(search), Instant::now());
        player.watch_ranks(app, self.watched_ranks())?;
        let last = app.playback().map(|playback| playback.span.last).unwrap_or_default();
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let to = app.playback().map(|playback| playback.within(Moment(last.0.saturating_sub(by))));
        player.rewind(app, to.unwrap_or_default())?;
        self.player = Some(player);
        Ok(())
    }

    pub(crate) fn go_live(&mut self, app: &mut App) {
        self.player = None;
        update(app, Action::GoLive);
    }

    /// Begins or ends a recording.
    pub(crate) fn record(&mut self, app: &mut App) {
        let Some(recorder) = &self.recorder else {
            let why = "this is a recording already: copy its file".to_owned();
            update(app, Action::Saved(Err(why)));
            return;
        };
        let records = recorder.state().file;
        if let Some(file) = &records {
            recorder.end();
            update(app, Action::Saved(Ok(file.path.clone())));
        } else {
            recorder.begin(file(app, "xpurec"), header(app));
        }
        if let Some(live) = &self.live {
            live.watch_all(records.is_none());
        }
        self.update_app(app);
    }

    /// Begins or ends a capture of the shown job.
    pub(crate) fn capture(&mut self, app: &mut App, wanted: Option<Wanted>) {
        let job = app.job().map(|job| job.name().clone());
        // A running capture can be ended from the past too.
        let may = |capturer: &&mut Capturer| !app.is_past() || capturer.is_capturing();
        let (Some(capturer), Some(job)) = (self.capturer.as_mut().filter(may), job) else {
            let why = "the past cannot be captured; `xpu-top capture --before 64` has the last steps";
            update(app, Action::Saved(Err(why.to_owned())));
            return;
        };
        if capturer.is_capturing() {
            capturer.end();
        } else {
            let before = self.recorder.as_ref().map(|recorder| recorder.lately(LATELY)).unwrap_or_default();
            capturer.begin(job, file(app, "xpucap"), wanted, before);
        }
        self.update_app(app);
    }

    /// Begins or ends traces by PyTorch's profiler on all ranks of the shown job.
    pub(crate) fn kineto(&mut self, app: &mut App) {
        let job = app.job().map(|job| job.name().clone());
        let may = |tracer: &&mut Tracer| !app.is_past() || tracer.is_tracing();
        let (Some(tracer), Some(job)) = (self.tracer.as_mut().filter(may), job) else {
            let why = "the past cannot be traced: go to now first";
            update(app, Action::Saved(Err(why.to_owned())));
            return;
        };
        if tracer.is_tracing() {
            tracer.end();
        } else {
            let wanted = kineto::Wanted { steps: Some(TRACED), ..kineto::Wanted::default() };
            tracer.begin(job, None, file(app, "kineto"), wanted, |_| {});
        }
        self.update_app(app);
    }
}

/// Number of steps that the key traces: two, because the first includes the start of the profiler.
const TRACED: u32 = 2;

/// The path of a new file in the current folder.
fn file(app: &App, ending: &str) -> PathBuf {
    let name = app.job().map(|job| JobName::cleaned(job.name().as_str()));
    let name = name.map(|name| format!("{name}-")).unwrap_or_default();
    PathBuf::from(format!("xpu-top-{name}{}.{ending}", figure::stamp(Moment::now())))
}

/// The header of a recording made here.
fn header(app: &App) -> Header {
    let endpoints: Vec<_> = app.connections.iter().map(|(endpoint, _)| endpoint.clone()).collect();
    recording_writer::header(app.job().map(Job::name), &endpoints)
}
