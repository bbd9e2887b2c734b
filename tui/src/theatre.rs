//! Whose frames the screen shows: a live job's, its last minutes', or a file's.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use xpu_shared::{
    id::{JobName, Rank},
    job::Job,
    recording::Header,
    unit::Moment,
};

use crate::{
    action::Action,
    app::App,
    arrival::Arrival,
    figure,
    live::Live,
    recorder::Recorder,
    replay::{Of, Playback, Projector, Search, Tape},
    update::update,
};

#[derive(Debug)]
pub(crate) struct Theatre {
    live: Option<Live>,
    recorder: Option<Recorder>,
    projector: Option<Projector>,
    watched: Option<(JobName, Rank)>,
}

impl Theatre {
    pub(crate) fn new(
        live: Option<Live>,
        tape: Option<(Tape, Option<Moment>)>,
        app: &mut App,
    ) -> anyhow::Result<Self> {
        let recorder = live.is_some().then(Recorder::start);
        let mut new = Self { live, recorder, projector: None, watched: None };
        if let Some((tape, begin)) = tape {
            // Read by two: by the screen, and by who looks for findings.
            let search = tape.again();
            app.replay(Playback::new(Of::File, tape.span()));
            let mut projector = Projector::new(tape, Search::begin(search), Instant::now());
            let begin = app.playback().map(|playback| playback.within(begin.unwrap_or_default()));
            projector.wind(app, begin.unwrap_or_default())?;
            new.projector = Some(projector);
        }
        Ok(new)
    }

    pub(crate) fn live(&self) -> Option<&Live> {
        self.live.as_ref()
    }

    /// Keeps what came in of a live job.
    pub(crate) fn keep(&mut self, arrival: &Arrival) {
        if let (Some(recorder), Arrival::Frame(frame)) = (&mut self.recorder, arrival) {
            recorder.take(Moment::now(), frame);
        }
    }

    /// Tells the app how the recorder does.
    pub(crate) fn tell(&self, app: &mut App) {
        if let Some(recorder) = &self.recorder {
            update(app, Action::Recorded(recorder.standing()));
        }
    }

    pub(crate) fn plays(&self) -> bool {
        self.projector.is_some()
    }

    /// `true` where what is shown changed.
    pub(crate) fn advance(&mut self, app: &mut App) -> anyhow::Result<bool> {
        match &mut self.projector {
            Some(projector) => Ok(projector.advance(app, Instant::now())?),
            None => Ok(false),
        }
    }

    pub(crate) fn seek(&mut self, app: &mut App, to: Moment) -> anyhow::Result<()> {
        match &mut self.projector {
            Some(projector) => Ok(projector.seek(app, to)?),
            None => Ok(()),
        }
    }

    pub(crate) fn step(&mut self, app: &mut App) -> anyhow::Result<()> {
        match &mut self.projector {
            Some(projector) => Ok(projector.step(app)?),
            None => Ok(()),
        }
    }

    pub(crate) fn watch_rank(&mut self, app: &mut App, rank: Option<(JobName, Rank)>) -> anyhow::Result<()> {
        if let Some(projector) = &mut self.projector {
            projector.watch_rank(app, rank.as_ref().map(|(_, rank)| *rank))?;
        }
        if let Some(live) = &self.live {
            live.watch_rank(rank.clone());
        }
        self.watched = rank;
        Ok(())
    }

    /// Shows the last minutes of a job that runs on, from `by` ago.
    pub(crate) fn look_back(&mut self, app: &mut App, by: Duration) -> anyhow::Result<()> {
        let Some(recorder) = &self.recorder else { return Ok(()) };
        // Nothing came in yet: there is no past.
        let Ok(recording) = recorder.past(header(app)) else { return Ok(()) };
        let tape = Tape::new(recording);
        let search = tape.again();
        app.replay(Playback::new(Of::Live, tape.span()));
        let mut projector = Projector::new(tape, Search::begin(search), Instant::now());
        projector.watch_rank(app, self.watched.as_ref().map(|(_, rank)| *rank))?;
        let last = app.playback().map(|playback| playback.span.1).unwrap_or_default();
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let to = app.playback().map(|playback| playback.within(Moment(last.0.saturating_sub(by))));
        projector.wind(app, to.unwrap_or_default())?;
        self.projector = Some(projector);
        Ok(())
    }

    pub(crate) fn go_live(&mut self, app: &mut App) {
        self.projector = None;
        update(app, Action::GoLive);
    }

    /// Begins a recording, or ends it.
    pub(crate) fn record(&mut self, app: &mut App) {
        let Some(recorder) = &self.recorder else {
            let why = "this is a recording already: copy its file".to_owned();
            update(app, Action::Saved(Err(why)));
            return;
        };
        let records = recorder.standing().file;
        if let Some(file) = &records {
            recorder.end();
            update(app, Action::Saved(Ok(file.path.clone())));
        } else {
            let name = app.job().map(|job| JobName::cleaned(job.name().as_str()));
            let name = name.map(|name| format!("{name}-")).unwrap_or_default();
            let path = PathBuf::from(format!("xpu-top-{name}{}.xpurec", figure::stamp(Moment::now())));
            recorder.begin(path, header(app));
        }
        if let Some(live) = &self.live {
            live.watch_all(records.is_none());
        }
        self.tell(app);
    }
}

/// What a recording made here says of itself.
fn header(app: &App) -> Header {
    Header {
        job: app.job().map(Job::name).map_or_else(String::new, ToString::to_string),
        hosts: app.roads.iter().map(|(endpoint, _)| endpoint.to_string()).collect(),
        made: Moment::now(),
        by: xpu_shared::VERSION.to_owned(),
    }
}
