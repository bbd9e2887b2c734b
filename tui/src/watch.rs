//! The main loop: input becomes actions, actions change the app, and the app is drawn.
#![forbid(unsafe_code)]

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use crossterm::event::{Event, KeyEventKind, MouseEventKind};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use xpu_analysis::capture::Groups;
use xpu_client::{
    arrival::{Arrivals, Endpoint},
    filter::Filter,
    live::Live,
    new_file,
    screen_capture::Capturer,
};
use xpu_model::{baseline::Runs, peak::Peaks};
use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};

use crate::{
    action::{Action, Effect, Reading},
    app::App,
    config::{Config, State},
    file_loader::FileLoader,
    frame_source::FrameSource,
    look::{Look, RequestedLook},
    svg,
    terminal::{self, Request, Screen, Signals},
    update::update,
};

pub use crate::frame_source::Replayed;

/// Interval of redraws without new data, because ages on the screen are in seconds.
const TICK: Duration = Duration::from_secs(1);
/// How long frames are taken before keys are checked again; too short to be noticed.
const TURN: Duration = Duration::from_millis(10);
/// After a redraw for data, this multiple of its time is left to arriving data, so a busy machine redraws
/// less often but loses nothing.
const REST: u32 = 2;

#[derive(Debug)]
pub struct WatchOptions {
    /// The job to show; the foremost one if none is named.
    pub job: Option<JobName>,
    /// The layout of its ranks, if the user gave it.
    pub groups: Option<Groups>,
    /// Errors from before the screen was taken over.
    pub warnings: Vec<String>,
    /// How to watch from another terminal.
    pub invitation: Option<String>,
    pub look: Look,
    /// The filter of the command line, which overrides the settings.
    pub filter: Option<Filter>,
    pub config: Config,
    /// Past runs with which the job is compared.
    pub runs: Option<Arc<Runs>>,
    /// The connection for requests to the collectors; a recording has none.
    pub live: Option<Live>,
    /// The part that makes captures; a recording has none.
    pub capturer: Option<Capturer>,
    /// The recording to replay instead of a job.
    pub replayed: Option<Replayed>,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            job: None,
            groups: None,
            warnings: Vec::new(),
            invitation: None,
            filter: None,
            config: Config::default(),
            runs: None,
            look: RequestedLook::default().look(|name| std::env::var(name).ok()),
            live: None,
            capturer: None,
            replayed: None,
        }
    }
}

/// When the next redraw is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Nothing changed.
    Never,
    /// Soon, at the pace for new data.
    Soon,
    Now,
}

/// Shows arriving frames until the user quits, or a signal ends the process.
///
/// # Errors If there is no terminal, or it goes away.
pub async fn watch(
    mut arrivals: Arrivals,
    endpoints: Vec<Endpoint>,
    options: WatchOptions,
) -> anyhow::Result<()> {
    let mut app = App::new(endpoints, options.job, options.look, Moment::now());
    app.lay_out(options.groups);
    app.configure(&options.config);
    app.job_view.compare_with(options.runs.as_ref());
    let kept = options.config.keep_state.then(State::path).flatten();
    if let Some(path) = &kept {
        app.resume(&State::load(path));
    }
    if let Some(filter) = options.filter {
        app.listing.filter = Some(filter);
    }
    options.warnings.into_iter().for_each(|warning| app.messages.warn(warning));
    match Peaks::parse(&std::env::var(Peaks::VARIABLE).unwrap_or_default()) {
        Ok(peaks) => app.gemms.peaks = peaks,
        Err(why) => app.messages.warn(why),
    }
    options.invitation.into_iter().for_each(|how| app.invite(how));
    let mut source = FrameSource::new(options.live, options.capturer, options.replayed, &mut app)?;
    let (loader, mut read) = FileLoader::start(PathBuf::from("."));
    let mut signals = Signals::listen()?;
    let mut screen = Screen::take(options.look.depth)
        .context("cannot use this terminal; `xpu-top status` works without one")?;
    if options.config.mouse {
        screen.listen_to_mouse()?;
    }
    let mut keys = terminal::keys()?;
    let usual = options.look.motion.pace();
    let mut pace = usual;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut due, mut drawn, mut open) = (Due::Now, Instant::now(), true);
    let mut advanced = drawn;
    loop {
        if due == Due::Now || (due == Due::Soon && drawn.elapsed() >= pace) {
            let began = Instant::now();
            screen.draw(&mut app)?;
            pace = usual.max(began.elapsed() * REST);
            due = if app.job_view.is_behind() { Due::Soon } else { Due::Never };
            drawn = Instant::now();
        }
        tokio::select! {
            event = keys.recv() => {
                // No more events: the terminal is gone.
                let Some(event) = event.transpose()? else { return keep(&mut app, kept.as_deref()) };
                due = Due::Now;
                for action in actions(&app, &event, &screen)? {
                    if let Some(effect) = update(&mut app, action)
                        && carry_out(effect, &mut app, &mut screen, &mut source, &loader)?
                    {
                        return keep(&mut app, kept.as_deref());
                    }
                }
            }
            arrival = arrivals.recv(), if open => {
                open = arrival.is_some();
                run_timers(&mut app, &mut source, &loader)?;
                let began = Instant::now();
                let mut next = arrival;
                while let Some(arrival) = next {
                    source.keep(&arrival);
                    update(&mut app, Action::Arrive(arrival));
                    next = if began.elapsed() < TURN { arrivals.try_recv().ok() } else { None };
                }
                due = due.max_soon();
            }
            _ = ticks.tick() => {
                run_timers(&mut app, &mut source, &loader)?;
                source.update_app(&mut app);
                due = due.max_soon();
            }
            Some(loaded) = read.recv() => {
                update(&mut app, Action::Loaded(loaded));
                due = due.max_soon();
            }
            () = sleep_until(advanced + pace), if source.plays() => {
                advanced = Instant::now();
                if source.advance(&mut app)? {
                    due = due.max_soon();
                }
            }
            () = sleep_until(drawn + pace), if due == Due::Soon => {}
            signal = signals.next() => {
                match signal {
                    Request::End => return keep(&mut app, kept.as_deref()),
                    Request::Stop => screen.suspend()?,
                    Request::GoOn => screen.resume()?,
                }
                due = Due::Now;
            }
            panic = terminal::failed() => {
                bail!("a part of xpu-top failed, and the screen would be wrong without it: {panic}");
            }
        }
    }
}

/// The state for the next screen, however this one ends.
fn keep(app: &mut App, kept: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = kept else { return Ok(()) };
    app.settle();
    app.state().save(path).with_context(|| format!("cannot keep {}", path.display()))
}

impl Due {
    fn max_soon(self) -> Self {
        if self == Self::Now { Self::Now } else { Self::Soon }
    }
}

/// Carries out effects of time, which need no screen.
fn run_timers(app: &mut App, source: &mut FrameSource, loader: &FileLoader) -> anyhow::Result<()> {
    match update(app, Action::Time(Moment::now())) {
        Some(Effect::AskStacks { job, ranks, reading }) => {
            ask_stacks(app, source.live(), job, ranks, reading);
        }
        Some(Effect::WatchRanks(ranks)) => source.watch_ranks(app, ranks)?,
        Some(Effect::Files(order)) => loader.order(order),
        _ => {}
    }
    Ok(())
}

fn ask_stacks(app: &mut App, live: Option<&Live>, job: JobName, ranks: Vec<Rank>, reading: Reading) {
    match live.filter(|_| !app.is_past()) {
        Some(live) if reading == Reading::Kept => {
            live.records(job.clone(), ranks.clone());
            live.kept_stacks(job, ranks);
        }
        Some(live) if reading == Reading::Gpus => live.gpu_stacks(job, ranks),
        Some(live) => live.stacks(job, ranks, reading == Reading::Natively),
        None => {
            let why = "the past has no processes to read".to_owned();
            update(app, Action::NoStacks(why));
        }
    }
}

/// The actions of a key or of the mouse.
fn actions(app: &App, event: &Event, screen: &Screen) -> std::io::Result<Vec<Action>> {
    if let Event::Mouse(mouse) = event {
        // Most mouse events are movements, for which nothing is computed.
        let is_handled = match mouse.kind {
            MouseEventKind::Moved => false,
            MouseEventKind::Up(_) => app.maps.zoom.is_begun(),
            _ => true,
        };
        return if is_handled { Ok(screen.hits(app)?.actions(*mouse, app)) } else { Ok(Vec::new()) };
    }
    let key = event.as_key_press_event().filter(|key| key.kind == KeyEventKind::Press);
    Ok(key.and_then(|key| app.means(key.into())).into_iter().collect())
}

/// Carries out an effect. Returns whether it ends the loop.
fn carry_out(
    effect: Effect,
    app: &mut App,
    screen: &mut Screen,
    source: &mut FrameSource,
    loader: &FileLoader,
) -> anyhow::Result<bool> {
    match effect {
        Effect::Quit => return Ok(true),
        Effect::Suspend => screen.suspend()?,
        Effect::Redraw => screen.forget()?,
        Effect::Save(path) => {
            let picture = svg::picture(&screen.picture(app)?, app.palette.theme());
            update(app, Action::Saved(save(path, &picture)));
        }
        Effect::Write(path, text) => {
            update(app, Action::Saved(save(path, &text)));
        }
        Effect::Copy(path, text) => {
            screen.copy(&text)?;
            update(app, Action::Copied(save(path, &text)));
        }
        Effect::WatchRanks(ranks) => source.watch_ranks(app, ranks)?,
        Effect::AskStacks { job, ranks, reading } => ask_stacks(app, source.live(), job, ranks, reading),
        Effect::LookBack(by) => source.look_back(app, by)?,
        Effect::GoLive => source.go_live(app),
        Effect::Seek(to) => source.seek(app, to)?,
        Effect::Step => source.step(app)?,
        Effect::Record => source.record(app),
        Effect::Capture(wanted) => source.capture(app, wanted),
        Effect::Kineto => source.kineto(app),
        Effect::Files(order) => loader.order(order),
    }
    Ok(false)
}

fn save(path: PathBuf, text: &str) -> Result<PathBuf, String> {
    match new_file::write(&path, |out| Ok(io::Write::write_all(out, text.as_bytes())?)) {
        Ok(()) => Ok(path),
        Err(error) => Err(format!("not saved: {error:#}")),
    }
}
