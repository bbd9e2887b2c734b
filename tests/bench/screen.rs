//! The cost of the screen: bytes on the connection, time per frame, memory, CPU, and time to the first frame.

use std::{
    env, fs,
    io::{self, Write},
    process::Command,
    time::{Duration, Instant},
};

use xpu_client::arrival::Arrival;
use xpu_simulation::Simulation;
use xpu_tests::Lab;
use xpu_tui::{action::Action, app::App, palette::Depth, terminal::Pen, update::update};
use xpu_wire::frame::Frame;

use crate::table::{Row, Table};

const RANKS_PER_HOST: u32 = 8;
const RANKS: [u32; 3] = [8, 1_024, 10_000];
const SIZES: [(u16, u16); 3] = [(80, 24), (132, 40), (260, 70)];

/// How many seconds of a job are drawn.
const DRAWN: u32 = 10;

/// The time of a frame at twenty frames per second.
const PICTURE_MS: f64 = 50.0;
const FIRST_PICTURE_MS: f64 = 2_000.0;
const MEMORY_MIB: f64 = 512.0;

/// Frames in a second in which hosts keep sending, each at its own time.
const PICTURES: usize = 10;

/// The argument that starts the process for the memory test. The next argument is the number of ranks to
/// keep.
pub(crate) const MEMORY: &str = "screen-memory";

/// The length of the kept history: ten minutes, the maximum number of points.
const REMEMBERED: u64 = 600;

/// Counts the written bytes, and drops them.
#[derive(Debug, Default)]
struct Line {
    bytes: usize,
}

impl Write for &mut Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn cost(table: &mut Table) {
    for ranks in RANKS {
        let simulation = Simulation::new(7, ranks / RANKS_PER_HOST, RANKS_PER_HOST);
        let first = first_picture(&simulation);
        table.row(
            Row::new(format!("{ranks} ranks: first picture, of what came in"), ms(first), "ms")
                .at_most(FIRST_PICTURE_MS),
        );
        let mut lab = Lab::new(simulation);
        for (width, height) in SIZES {
            drawn(&mut lab, ranks, width, height, table);
        }
        table.row(
            Row::new(format!("{ranks} ranks: memory after ten minutes"), remembered(ranks), "MiB")
                .at_most(MEMORY_MIB),
        );
    }
}

fn drawn(lab: &mut Lab, ranks: u32, width: u16, height: u16, table: &mut Table) {
    let mut line = Line::default();
    let mut pen = Pen::sized(&mut line, width, height).expect("a line takes all");
    pen.draw(lab.app()).expect("a line takes all");
    let (mut folded, mut pictures) = (Duration::ZERO, Vec::new());
    for _ in 0..DRAWN {
        folded += lab.timed_parts(PICTURES, |app| {
            let began = Instant::now();
            pen.draw(app).expect("a line takes all");
            pictures.push(began.elapsed());
        });
    }
    drop(pen);
    let all = line.bytes;
    let mut line = Line::default();
    let mut pen = Pen::sized(&mut line, width, height).expect("a line takes all");
    pen.draw(lab.app()).expect("a line takes all");
    drop(pen);
    // The first frame was drawn completely, so its bytes are subtracted.
    let each = all.saturating_sub(line.bytes) as f64 / f64::from(DRAWN);
    pictures.sort_unstable();
    let longest = pictures[pictures.len() - 1];
    let drawn = pictures.iter().sum::<Duration>();
    let share = ((folded + drawn) / DRAWN).as_secs_f64() * 100.0;
    let what = |of: &str| format!("{ranks} ranks, {width}x{height}: {of}");
    let middle = pictures[pictures.len() / 2];
    table.row(Row::new(what("picture, median"), ms(middle), "ms"));
    table.row(Row::new(what("picture, longest"), ms(longest), "ms").at_most(PICTURE_MS));
    table.row(Row::new(what("a second later"), each, "B").note(format!("whole {} B", line.bytes)));
    table.row(Row::new(what("of a core, at ten pictures a second"), share, "%"));
}

fn first_picture(simulation: &Simulation) -> Duration {
    let (snapshots, digests) = (simulation.snapshots(0), simulation.digests(1));
    let mut line = Line::default();
    let began = Instant::now();
    let mut app = App::new(Vec::new(), None, Depth::True, simulation.started);
    let mut pen = Pen::sized(&mut line, 132, 40).expect("a line takes all");
    snapshots.into_iter().chain(digests).for_each(|frame| arrive(&mut app, frame));
    pen.draw(&mut app).expect("a line takes all");
    began.elapsed()
}

fn arrive(app: &mut App, frame: Frame) {
    update(app, Action::Arrive(Arrival::Frame(Box::new(frame))));
}

/// Runs in its own process, so that only its memory is counted.
fn remembered(ranks: u32) -> f64 {
    let itself = env::current_exe().expect("Linux provides the program's path");
    let reported =
        Command::new(itself).args([MEMORY, &ranks.to_string()]).output().expect("it ran a moment ago");
    String::from_utf8_lossy(&reported.stdout).trim().parse().expect("a number")
}

/// Follows this number of ranks for a while, and prints its memory.
pub(crate) fn remember(ranks: u32) {
    let simulation = Simulation::new(7, ranks / RANKS_PER_HOST, RANKS_PER_HOST);
    let mut app = App::new(Vec::new(), None, Depth::True, simulation.started);
    let mut line = Line::default();
    let mut pen = Pen::sized(&mut line, 132, 40).expect("a line takes all");
    simulation.snapshots(0).into_iter().for_each(|frame| arrive(&mut app, frame));
    for second in 1..=REMEMBERED {
        update(&mut app, Action::Time(simulation.started.after(Duration::from_secs(second))));
        simulation.digests(second).into_iter().for_each(|frame| arrive(&mut app, frame));
        pen.draw(&mut app).expect("a line takes all");
    }
    println!("{}", resident_mib());
}

pub(crate) fn resident_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
