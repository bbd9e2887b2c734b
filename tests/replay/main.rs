//! Recordings: a replay shows the same as the live screen, and a recorder that ends in any way loses at most
//! its last second.

mod recorder;

use std::time::{Duration, Instant};

use ratatui::{buffer::Buffer, layout::Rect};
use xpu_recording::{FrameCursor, Media, Recording, Span};
use xpu_simulation::Simulation;
use xpu_tests::{Lab, program::until};
use xpu_tui::{
    app::App,
    key::Key,
    palette::Depth,
    playback::{Of, Playback},
    replay::{Player, Search, findings_between},
    update::update,
    view,
};
use xpu_wire::{id::Rank, unit::Moment};

const WIDTH: u16 = 132;

/// At this width the overview shows no step times of the last minutes; a capture has only one minute of them.
const WITHOUT_STEP_TIMES: u16 = 100;
const HEIGHT: u16 = 44;

/// A recording on a screen.
struct Shown {
    app: App,
    player: Player,
}

impl Shown {
    fn of(bytes: &[u8]) -> Self {
        let cursor = FrameCursor::new(Recording::open(Media::memory(bytes.to_vec())).expect("a recording"));
        let mut app = App::new(Vec::new(), None, Depth::True, Moment(0));
        let (begin, search) = (cursor.span().first, Search::begin(cursor.again()));
        app.replay(Playback::new(Of::File, cursor.span()));
        let mut player = Player::new(cursor, search, Instant::now());
        player.rewind(&mut app, begin).expect("it reads");
        Self { app, player }
    }

    fn seek(&mut self, to: Moment) -> &mut Self {
        self.player.seek(&mut self.app, to).expect("it reads");
        self
    }

    /// The lines of the screen as a live screen has them: without the first, which shows `REPLAY`, and
    /// without the timeline.
    fn lines(&mut self) -> Vec<String> {
        self.app.settle();
        let mut lines = draw(&self.app, HEIGHT + 1);
        lines.remove(usize::from(HEIGHT) - 1);
        lines.remove(0);
        lines
    }

    fn time_bar(&mut self) -> String {
        self.app.settle();
        draw(&self.app, HEIGHT + 1).remove(usize::from(HEIGHT) - 1)
    }

    fn keys(&mut self, keys: &str) -> Vec<xpu_tui::action::Effect> {
        let press = |c| {
            let code =
                if c == '\n' { crossterm::event::KeyCode::Enter } else { crossterm::event::KeyCode::Char(c) };
            Key { code, control: false, shift: false }
        };
        let mut effects = Vec::new();
        for c in keys.chars() {
            if let Some(action) = self.app.means(press(c)) {
                effects.extend(update(&mut self.app, action));
            }
        }
        effects
    }
}

/// For every line its letters, and then the colours of every cell.
fn draw(app: &App, height: u16) -> Vec<String> {
    draw_at(app, WIDTH, height)
}

fn draw_at(app: &App, width: u16, height: u16) -> Vec<String> {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    view::draw(app, buffer.area, &mut buffer);
    let row = |cells: &[ratatui::buffer::Cell]| {
        let letters: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        cells.iter().fold(letters + "\n", |line, cell| format!("{line} {}{}", cell.fg, cell.bg))
    };
    buffer.content.chunks(usize::from(width)).map(row).collect()
}

/// A job that is healthy, then has a slow rank, then hangs. Returns the screen at several moments, and the
/// recording.
fn story() -> (Vec<(Moment, Vec<String>)>, Vec<u8>) {
    let mut lab = Lab::recorded(Simulation::new(7, 2, 8));
    let mut screens = Vec::new();
    let mut look = |lab: &mut Lab| {
        lab.app().settle();
        let mut lines = draw(lab.app(), HEIGHT);
        lines.remove(0);
        screens.push((lab.now(), lines));
    };
    for _ in 0..8 {
        lab = lab.run(5);
        look(&mut lab);
    }
    lab = lab.slow_down(Rank(5), 1.4);
    for _ in 0..10 {
        lab = lab.run(5);
        look(&mut lab);
    }
    lab = lab.hang(Rank(3));
    for _ in 0..8 {
        lab = lab.run(5);
        look(&mut lab);
    }
    (screens, lab.recording())
}

/// Compares the screens, except the keys for capture and record in the last line, which a recording does not
/// have.
#[track_caller]
fn same(shown: &[String], live: &[String], what: &str) {
    for (line, (shown, live)) in shown.iter().zip(live).enumerate().take(live.len() - 1) {
        assert_eq!(shown, live, "{what}, line {}", line + 1);
    }
    assert_eq!(shown.len(), live.len());
    let keys = |lines: &[String]| {
        let letters = lines.last().and_then(|line| line.split('\n').next()).unwrap_or_default();
        letters.split("  ").map(|key| key.trim().to_owned()).filter(|key| !key.is_empty()).collect::<Vec<_>>()
    };
    let (shown, live) = (keys(shown), keys(live));
    let asks = |key: &&String| ["c capture", "r record"].contains(&key.as_str());
    assert!(!shown.iter().any(|key| asks(&key)), "{what}: {shown:?}");
    // Other keys may have taken their space.
    assert!(
        live.iter().filter(|key| !asks(key)).all(|key| shown.contains(key)),
        "{what}: {live:?}, {shown:?}"
    );
}

#[test]
fn a_replay_shows_the_live_state_forwards_and_after_any_jump() {
    let (screens, bytes) = story();
    let mut shown = Shown::of(&bytes);
    for (at, live) in &screens {
        same(&shown.seek(*at).lines(), live, &format!("played to {at:?}"));
    }
    // Jumps back and forth.
    for index in [3, 20, 0, 12, 25, 11, 24, 1] {
        let (at, live) = &screens[index];
        // The hang page opens by itself, as it did live; `1` returns to the overview.
        shown.keys("1");
        same(&shown.seek(*at).lines(), live, &format!("jumped to {at:?}"));
    }
}

#[test]
fn findings_are_marked_and_jumped_to() {
    let (_, bytes) = story();
    let mut cursor = FrameCursor::new(Recording::open(Media::memory(bytes.clone())).expect("a recording"));
    let mut marks = Vec::new();
    findings_between(&mut cursor, |new, _| {
        marks.extend(new);
        true
    })
    .expect("it reads");
    assert!(
        marks.iter().any(|mark| !mark.finding.stops_the_job() && mark.finding.ranks == [Rank(5)]),
        "{marks:?}"
    );
    assert!(
        marks.iter().any(|mark| mark.finding.stops_the_job() && mark.finding.ranks == [Rank(3)]),
        "{marks:?}"
    );
    let mut shown = Shown::of(&bytes);
    let last = shown.app.playback().expect("a replay").span.last;
    until("all findings", || {
        shown.player.advance(&mut shown.app, Instant::now()).expect("it reads");
        (shown.app.playback().expect("a replay").searched >= last).then_some(())
    });
    // The page of findings lists all findings, and marks those that are still to come.
    let listed = |shown: &mut Shown, word: &str| {
        shown.keys("7");
        shown.lines().iter().filter(|line| line.contains(word)).count()
    };
    shown.seek(Moment(0));
    assert_eq!((listed(&mut shown, " later  "), listed(&mut shown, " began  ")), (marks.len(), 0));
    shown.seek(last);
    assert_eq!((listed(&mut shown, " later  "), listed(&mut shown, " began  ")), (0, marks.len()));
    shown.seek(Moment(0)).keys("1");
    for mark in &marks {
        let effects = shown.keys("]");
        let [xpu_tui::action::Effect::Seek(to)] = effects[..] else { panic!("{effects:?}") };
        assert_eq!(to, mark.at);
        shown.seek(to);
    }
    assert!(shown.keys("]").is_empty());
    let effects = shown.keys("[");
    assert_eq!(effects, [xpu_tui::action::Effect::Seek(marks[marks.len() - 2].at)]);
}

#[test]
fn replay_keys_have_their_documented_effect() {
    let (_, bytes) = story();
    let mut shown = Shown::of(&bytes);
    let Span { first, last } = shown.app.playback().expect("a replay").span;
    let bar = shown.time_bar();
    assert!(bar.contains("REPLAY 08:30:07 x1"), "{bar}");
    let seek = |effects: Vec<xpu_tui::action::Effect>| match effects[..] {
        [xpu_tui::action::Effect::Seek(to)] => to,
        _ => panic!("{effects:?}"),
    };
    assert_eq!(seek(shown.keys("t+1m\n")), first.after(Duration::from_mins(1)));
    assert_eq!(seek(shown.keys("}")), last);
    assert_eq!(seek(shown.keys("t50%\n")).since(first), last.since(first) / 2);
    assert!(shown.keys("tq\n").is_empty(), "while a time is typed, q is a letter");
    shown.keys(">>>>>>>>>");
    let speed = |shown: &Shown| shown.app.playback().expect("a replay").speed.to_string();
    assert_eq!(speed(&shown), "x64");
    shown.keys("<<<<<<<<<<<<");
    assert_eq!(speed(&shown), "x0.25");
    shown.keys(" ");
    assert!(shown.app.playback().expect("a replay").paused);
    let before = shown.app.playback().expect("a replay").position;
    shown.player.step(&mut shown.app).expect("it reads");
    let stepped = shown.app.playback().expect("a replay").position;
    assert_eq!(stepped.since(before), Duration::from_secs(1), "the next frames come a second later");
}

#[test]
fn a_replay_runs_at_its_speed_ends_and_loops() {
    let (_, bytes) = story();
    let mut shown = Shown::of(&bytes);
    let Span { first, last } = shown.app.playback().expect("a replay").span;
    let mut now = Instant::now();
    shown.player.advance(&mut shown.app, now).expect("it reads");
    let start = shown.app.playback().expect("a replay").position;
    shown.keys(">>");
    now += Duration::from_secs(2);
    shown.player.advance(&mut shown.app, now).expect("it reads");
    assert_eq!(shown.app.playback().expect("a replay").position.since(start), Duration::from_secs(8));
    for _ in 0..2 {
        now += Duration::from_hours(1);
        shown.player.advance(&mut shown.app, now).expect("it reads");
    }
    let playback = shown.app.playback().expect("a replay");
    assert!(playback.paused && playback.position == last);
    shown.keys("L1");
    let effects = shown.keys(" ");
    assert_eq!(effects, [xpu_tui::action::Effect::Seek(first)]);
    shown.seek(first);
    for _ in 0..2 {
        now = Instant::now() + Duration::from_hours(2);
        shown.player.advance(&mut shown.app, now).expect("it reads");
    }
    let playback = shown.app.playback().expect("a replay");
    assert!(!playback.paused && playback.position == first, "{playback:?}");
}

/// A capture has the last minute of the job, and ends when its steps have arrived.
#[test]
fn a_replayed_capture_ends_in_the_live_state() {
    let begun = || Lab::recorded(Simulation::new(7, 2, 8));
    ends_alike(begun().run(100), "no outliers");
    // The recorded minute begins before the rank became slow.
    ends_alike(begun().run(80).slow_down(Rank(5), 1.4).run(30), "rank 5 ");
    ends_alike(begun().run(80).hang(Rank(3)).run(20), "rank 3 ");
}

#[track_caller]
fn ends_alike(mut lab: Lab, finds: &str) {
    let end = lab.now();
    let mut shown = Shown::of(&lab.recording_of(Duration::from_mins(1)));
    shown.seek(end);
    for page in ["1", "7"] {
        lab.keys(page).app().settle();
        shown.keys(page);
        shown.app.settle();
        let lines = |app: &App, height: u16| {
            let mut lines = draw_at(app, WITHOUT_STEP_TIMES, height);
            lines.remove(0);
            lines
        };
        let (mut past, live) = (lines(&shown.app, HEIGHT + 1), lines(lab.app(), HEIGHT));
        past.remove(usize::from(HEIGHT) - 2);
        let reported = |lines: &[String]| lines.iter().any(|line| line.contains(finds));
        if page == "1" {
            same(&past, &live, &format!("page {page}, {finds}"));
            assert!(reported(&live), "{finds}: {}", live.join("\n"));
        } else {
            // The page of a recording covers the recording's own time, and lists all incidents of the file.
            assert_eq!(reported(&past), reported(&live), "{finds}: {}\n{}", past.join("\n"), live.join("\n"));
        }
    }
}

/// The past of a live job is shown while the viewer continues to follow the job. After the return, the screen
/// shows the current state.
#[test]
fn the_past_of_a_live_job_can_be_shown() {
    let mut lab = Lab::recorded(Simulation::new(7, 2, 8)).run(30);
    let cursor = FrameCursor::new(Recording::open(Media::memory(lab.recording())).expect("a recording"));
    let past = Moment(lab.now().0 - 10_000_000_000);
    let search = Search::begin(cursor.again());
    let mut player = Player::new(cursor.again(), search, Instant::now());
    lab.app().replay(Playback::new(Of::Live, cursor.span()));
    player.rewind(lab.app(), past).expect("it reads");
    let step = |lab: &mut Lab| lab.screen(132, 40).text();
    let then = step(&mut lab);
    let mut lab = lab.run(20);
    assert_eq!(step(&mut lab), then, "what is past does not move");
    assert!(then.contains("PAST"), "{then}");
    update(lab.app(), xpu_tui::action::Action::GoLive);
    let mut other = Lab::recorded(Simulation::new(7, 2, 8)).run(50);
    let live = other.screen(132, 40).text();
    let rest = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rest(&step(&mut lab)), rest(&live));
}
