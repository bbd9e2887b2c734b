//! Recordings: what was live is shown again alike, and no end of a recorder costs more than its last second.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use ratatui::{buffer::Buffer, layout::Rect};
use serde_json::Value;
use xpu_shared::{
    codec,
    frame::Body,
    id::Rank,
    recording::{Kind, Media, Recording},
    simulation::Simulation,
    unit::Moment,
};
use xpu_tests::{
    Lab,
    host::Host,
    program::{Program, run, until},
};
use xpu_top::{
    app::App,
    keymap::{self, Key},
    palette::Depth,
    replay::{Of, Playback, Projector, Search, Tape, findings_between},
    update::update,
    view,
};

const WIDTH: u16 = 132;
const HEIGHT: u16 = 44;

/// A recording on a screen.
struct Shown {
    app: App,
    projector: Projector,
}

impl Shown {
    fn of(bytes: &[u8]) -> Self {
        let tape = Tape::new(Recording::open(Media::memory(bytes.to_vec())).expect("a recording"));
        let mut app = App::new(Vec::new(), None, Depth::True, Moment(0));
        let (begin, search) = (tape.span().0, Search::begin(tape.again()));
        app.replay(Playback::new(Of::File, tape.span()));
        let mut projector = Projector::new(tape, search, Instant::now());
        projector.wind(&mut app, begin).expect("it reads");
        Self { app, projector }
    }

    fn seek(&mut self, to: Moment) -> &mut Self {
        self.projector.seek(&mut self.app, to).expect("it reads");
        self
    }

    /// Its lines but the first, which says `REPLAY`, and that of time; as the live screen has them.
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

    fn keys(&mut self, keys: &str) -> Vec<xpu_top::action::Effect> {
        let press = |c| {
            let code =
                if c == '\n' { crossterm::event::KeyCode::Enter } else { crossterm::event::KeyCode::Char(c) };
            Key { code, control: false, shift: false }
        };
        let mut effects = Vec::new();
        for c in keys.chars() {
            if let Some(action) = keymap::lookup(press(c), self.app.scope()) {
                effects.extend(update(&mut self.app, action));
            }
        }
        effects
    }
}

/// Every line's letters, and then the look of every cell.
fn draw(app: &App, height: u16) -> Vec<String> {
    let mut buffer = Buffer::empty(Rect::new(0, 0, WIDTH, height));
    view::draw(app, buffer.area, &mut buffer);
    let row = |cells: &[ratatui::buffer::Cell]| {
        let letters: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        cells.iter().fold(letters, |line, cell| format!("{line} {}{}", cell.fg, cell.bg))
    };
    buffer.content.chunks(usize::from(WIDTH)).map(row).collect()
}

/// A job that is well, then has a slow rank, then hangs: its screen at each of these moments, and the recording.
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

#[track_caller]
fn same(shown: &[String], live: &[String], what: &str) {
    for (line, (shown, live)) in shown.iter().zip(live).enumerate() {
        assert_eq!(shown, live, "{what}, line {}", line + 1);
    }
    assert_eq!(shown.len(), live.len());
}

#[test]
fn a_replay_shows_what_was_live_forwards_and_after_any_jump() {
    let (screens, bytes) = story();
    let mut shown = Shown::of(&bytes);
    for (at, live) in &screens {
        same(&shown.seek(*at).lines(), live, &format!("played to {at:?}"));
    }
    // Back and forth.
    for index in [3, 20, 0, 12, 25, 11, 24, 1] {
        let (at, live) = &screens[index];
        // The hang has shown itself, as it did live.
        shown.keys("1");
        same(&shown.seek(*at).lines(), live, &format!("jumped to {at:?}"));
    }
}

#[test]
fn findings_are_marked_and_jumped_to() {
    let (_, bytes) = story();
    let mut tape = Tape::new(Recording::open(Media::memory(bytes.clone())).expect("a recording"));
    let mut marks = Vec::new();
    findings_between(&mut tape, |new, _| {
        marks.extend(new);
        true
    })
    .expect("it reads");
    assert!(marks.iter().any(|mark| !mark.stops && mark.sentence.contains("rank 5")), "{marks:?}");
    assert!(marks.iter().any(|mark| mark.stops && mark.sentence.contains("rank 3")), "{marks:?}");
    let mut shown = Shown::of(&bytes);
    let last = shown.app.playback().expect("a replay").span.1;
    until("all findings", || {
        shown.projector.advance(&mut shown.app, Instant::now()).expect("it reads");
        (shown.app.playback().expect("a replay").searched >= last).then_some(())
    });
    shown.seek(Moment(0));
    for mark in &marks {
        let effects = shown.keys("]");
        let [xpu_top::action::Effect::Seek(to)] = effects[..] else { panic!("{effects:?}") };
        assert_eq!(to, mark.at);
        shown.seek(to);
    }
    assert!(shown.keys("]").is_empty());
    let effects = shown.keys("[");
    assert_eq!(effects, [xpu_top::action::Effect::Seek(marks[marks.len() - 2].at)]);
}

#[test]
fn keys_of_time_do_what_they_say() {
    let (_, bytes) = story();
    let mut shown = Shown::of(&bytes);
    let (first, last) = shown.app.playback().expect("a replay").span;
    let bar = shown.time_bar();
    assert!(bar.contains("REPLAY 08:30:07 x1"), "{bar}");
    let seek = |effects: Vec<xpu_top::action::Effect>| match effects[..] {
        [xpu_top::action::Effect::Seek(to)] => to,
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
    shown.projector.step(&mut shown.app).expect("it reads");
    let stepped = shown.app.playback().expect("a replay").position;
    assert_eq!(stepped.since(before), Duration::from_secs(1), "the next frames come a second later");
}

#[test]
fn time_passes_at_its_speed_ends_and_loops() {
    let (_, bytes) = story();
    let mut shown = Shown::of(&bytes);
    let (first, last) = shown.app.playback().expect("a replay").span;
    let mut now = Instant::now();
    shown.projector.advance(&mut shown.app, now).expect("it reads");
    let start = shown.app.playback().expect("a replay").position;
    shown.keys(">>");
    now += Duration::from_secs(2);
    shown.projector.advance(&mut shown.app, now).expect("it reads");
    assert_eq!(shown.app.playback().expect("a replay").position.since(start), Duration::from_secs(8));
    for _ in 0..2 {
        now += Duration::from_hours(1);
        shown.projector.advance(&mut shown.app, now).expect("it reads");
    }
    let playback = shown.app.playback().expect("a replay");
    assert!(playback.paused && playback.position == last);
    shown.keys("L1");
    let effects = shown.keys(" ");
    assert_eq!(effects, [xpu_top::action::Effect::Seek(first)]);
    shown.seek(first);
    for _ in 0..2 {
        now = Instant::now() + Duration::from_hours(2);
        shown.projector.advance(&mut shown.app, now).expect("it reads");
    }
    let playback = shown.app.playback().expect("a replay");
    assert!(!playback.paused && playback.position == first, "{playback:?}");
}

/// The past of a live job is shown while the job is followed on, and now is now again.
#[test]
fn a_live_job_can_be_looked_back_at() {
    let mut lab = Lab::recorded(Simulation::new(7, 2, 8)).run(30);
    let tape = Tape::new(Recording::open(Media::memory(lab.recording())).expect("a recording"));
    let past = Moment(lab.now().0 - 10_000_000_000);
    let search = Search::begin(tape.again());
    let mut projector = Projector::new(tape.again(), search, Instant::now());
    lab.app().replay(Playback::new(Of::Live, tape.span()));
    projector.wind(lab.app(), past).expect("it reads");
    let step = |lab: &mut Lab| lab.screen(132, 40).text();
    let then = step(&mut lab);
    let mut lab = lab.run(20);
    assert_eq!(step(&mut lab), then, "what is past does not move");
    assert!(then.contains("PAST"), "{then}");
    update(lab.app(), xpu_top::action::Action::GoLive);
    let mut other = Lab::recorded(Simulation::new(7, 2, 8)).run(50);
    let live = other.screen(132, 40).text();
    let rest = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rest(&step(&mut lab)), rest(&live));
}

/// Two ranks that do the same until one is told not to.
const STEPS: &str = "
comm = communicator()
for n in range(1000000):
    if n == 200 and HANGS and RANK == 1: hold()
    ok(all_reduce(comm, 1000))
    sync()
    step()
";

fn record(host: &Host, file: &Path, more: &str) -> Command {
    let mut command = host.xpu_top("record -o");
    command.arg(file).args(["--hosts", &format!("{}:{}", host.address, xpu_tests::host::BASE)]);
    command.arg("--key-file").arg(host.key()).args(more.split_whitespace());
    command
}

/// Numbers of the digests of each host, in order; what is there must have no gap.
fn digests(recording: &mut Recording) -> BTreeMap<String, Vec<u64>> {
    let mut numbers: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for entry in recording.entries().to_vec() {
        let block = recording.block(&entry).expect("it reads").expect("a whole block");
        for record in block.records() {
            let frame = codec::decode(record.frame).expect("a whole frame");
            if let Body::Digest(_) = frame.body {
                numbers.entry(frame.host.to_string()).or_default().push(frame.number);
            }
        }
    }
    numbers
}

/// Fifty recorders of one job, each killed at another moment.
#[test]
fn a_recorder_that_is_killed_leaves_all_but_its_last_second() {
    let host = Host::new();
    let _ranks: Vec<_> = (0..2).map(|rank| host.rank_of(rank, 2, &STEPS.replace("HANGS", "False"))).collect();
    until("both ranks", || (host.status()["coverage"]["ranks_seen"] == 2).then_some(()));
    let file = |number: usize| -> PathBuf { host.place.path(&format!("{number}.xpurec")) };
    let mut seen = 0;
    for five in 0..10 {
        let recorders: Vec<_> = (0..5)
            .map(|one| {
                let number = five * 5 + one;
                let program = Program::start(&mut record(&host, &file(number), ""));
                (number, program, Instant::now() + Duration::from_millis((number as u64 * 389) % 2_700 + 60))
            })
            .collect();
        for (number, recorder, at) in recorders {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            recorder.signal("KILL");
            let killed = Moment::now();
            drop(recorder);
            let length = fs::metadata(file(number)).map_or(0, |file| file.len());
            match Recording::open_file(&file(number)) {
                Ok(mut recording) => {
                    assert!(!recording.is_closed());
                    let numbers = digests(&mut recording);
                    for numbers in numbers.values() {
                        assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "{numbers:?}");
                        seen += numbers.len();
                    }
                    let last = recording.entries().iter().rfind(|entry| entry.kind == Kind::Overview);
                    let behind = killed.since(last.expect("a block").last);
                    // A snapshot comes every two seconds, a digest every second; a second may not have been written.
                    assert!(behind < Duration::from_secs(8), "file {number}: {behind:?} are missing");
                    let end = recording.damage().iter().map(|damage| damage.offset + damage.bytes).max();
                    assert!(end.is_none_or(|end| end == length), "only its end can be torn");
                }
                Err(error) => {
                    let why = error.to_string();
                    let young = why.contains("no whole block")
                        || why.contains("empty")
                        || why.contains("No such file");
                    assert!(young, "file {number}: {why}");
                }
            }
        }
    }
    assert!(seen > 20, "the recorders heard {seen} digests");
}

/// What is found of a job that hangs is found of its recording, live by `status` and by who looks at the file.
#[test]
fn a_recorded_hang_has_the_findings_it_had_live() {
    let host = Host::new();
    let path = host.place.path("hang.xpurec");
    let recorder = Program::start(&mut record(&host, &path, ""));
    let script = STEPS.replace("HANGS", "True");
    let _ranks: Vec<_> = (0..2).map(|rank| host.rank_of(rank, 2, &script)).collect();
    let live = until("a hang", || {
        let status = host.status();
        status["findings"].as_array().is_some_and(|findings| !findings.is_empty()).then_some(status)
    });
    // What the last question saw is in the file when the next second is.
    let again = host.status();
    recorder.signal("INT");
    let outcome = recorder.end();
    assert!(outcome.status.success() && outcome.stderr.contains("of 2 ranks on 1 host"), "{outcome:?}");
    let told = run(host.xpu_top("status --json --replay").arg(&path));
    let replayed: Value = serde_json::from_str(&told.stdout).expect("a document");
    let of = |status: &Value| {
        let findings = status["findings"].as_array().expect("findings").iter();
        findings
            .map(|finding| {
                ["kind", "class", "ranks", "confidence", "collective"].map(|part| finding[part].clone())
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&replayed), of(&again), "{told:?}");
    assert_eq!(of(&live)[0][..3], of(&replayed)[0][..3]);
    assert_eq!(told.status.code(), Some(2));
    // Details of every rank are there, whoever was looked at.
    let alone = run(host.xpu_top("status --json --rank 0 --replay").arg(&path));
    let alone: Value = serde_json::from_str(&alone.stdout).expect("a document");
    assert!(alone["ranks"][0]["collectives"].as_array().is_some_and(|some| !some.is_empty()), "{alone}");
    // Before it hung nothing was wrong.
    let before = run(host.xpu_top("status --json --at +2s --replay").arg(&path));
    let before: Value = serde_json::from_str(&before.stdout).expect("a document");
    assert_eq!(before["findings"].as_array().map(Vec::len), Some(0), "{before}");
}

#[test]
fn files_that_are_no_recordings_are_told_apart() {
    let place = xpu_tests::place::Place::new();
    let status = |path: &Path| {
        let mut command = place.command(xpu_tests::built::artifact("xpu-top"));
        run(command.arg("status").arg("--replay").arg(path))
    };
    for (name, bytes, said) in [
        ("empty", &b""[..], "empty"),
        ("foreign", &[7; 3000][..], "no recording of xpu-top"),
        ("cut", &b"\x89xpurec\n\x01\x00"[..], "no whole block"),
    ] {
        let path = place.path(name);
        fs::write(&path, bytes).expect("a file in a fresh folder");
        let outcome = status(&path);
        assert_eq!(outcome.status.code(), Some(64), "{outcome:?}");
        assert!(outcome.stderr.contains(said) && outcome.stderr.contains("record"), "{outcome:?}");
    }
    assert!(status(&place.path("nowhere")).stderr.contains("No such file"));
}
