//! A recording of many ranks and one hour: the time until it is on the screen, and the time of a jump in it.

use std::{
    fs::{self, File},
    io::BufWriter,
    path::Path,
    time::{Duration, Instant},
};

use ratatui::{buffer::Buffer, layout::Rect};
use xpu_client::replay_file;
use xpu_recording::{Header, Packer, Writer};
use xpu_simulation::Simulation;
use xpu_tests::place::Place;
use xpu_tui::{
    app::App,
    palette::Depth,
    playback::{Of, Playback},
    replay::{Player, Search},
    view,
};
use xpu_wire::unit::Moment;

use crate::table::{Row, Table};

const HOSTS: u32 = 128;
const RANKS_PER_HOST: u32 = 8;
const SECONDS: u64 = 3_600;

/// The targets of jumps, in percent of the hour.
const JUMPS: [u32; 9] = [50, 95, 10, 60, 59, 0, 100, 33, 32];

pub(crate) fn scrub(table: &mut Table) {
    let place = Place::new();
    let path = place.path("hour.xpurec");
    write(&path);
    let bytes = fs::metadata(&path).map_or(0, |file| file.len()) as f64;
    let ranks = f64::from(HOSTS * RANKS_PER_HOST);
    let began = Instant::now();
    let cursor = replay_file::open(&path).expect("it was just written");
    // As on the screen, another thread reads the file for findings.
    let search = Search::begin(cursor.again());
    let mut app = App::new(Vec::new(), None, Depth::True, Moment(0));
    let (first, last) = (cursor.span().first, cursor.span().last);
    app.replay(Playback::new(Of::File, cursor.span()));
    let mut player = Player::new(cursor, search, began);
    player.rewind(&mut app, first).expect("it reads");
    picture(&mut app);
    let opened = began.elapsed();
    let mut jumps: Vec<_> = JUMPS
        .iter()
        .map(|percent| {
            let to = first.after(last.since(first) * *percent / 100);
            let began = Instant::now();
            player.seek(&mut app, to).expect("it reads");
            picture(&mut app);
            began.elapsed()
        })
        .collect();
    jumps.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    table.row(Row::new("recording, 1,024 ranks, a rank and second", bytes / ranks / SECONDS as f64, "B"));
    table.row(Row::new("recording of 1,024 ranks x 1 h: first picture", ms(opened), "ms").at_most(2_000.0));
    table.row(Row::new("the same: jump, median", ms(jumps[jumps.len() / 2]), "ms").at_most(200.0));
    table.row(Row::new("the same: jump, longest", ms(jumps[jumps.len() - 1]), "ms").at_most(200.0));
}

fn picture(app: &mut App) {
    let mut buffer = Buffer::empty(Rect::new(0, 0, 132, 40));
    app.settle();
    view::draw(app, buffer.area, &mut buffer);
}

fn write(path: &Path) {
    let simulation = Simulation::new(7, HOSTS, RANKS_PER_HOST);
    let file = BufWriter::new(File::create(path).expect("a file in a fresh folder"));
    let mut writer = Writer::begin(file, &Header::default()).expect("room on the disk");
    let mut packer = Packer::default();
    for second in 0..SECONDS {
        let frames = if second == 0 { simulation.snapshots(0) } else { simulation.digests(second) };
        for frame in frames {
            let due = packer.due(frame.now).expect("it compresses");
            let full = packer.push(frame.now, &frame).expect("it compresses");
            due.iter().chain(&full).for_each(|block| writer.write(block).expect("room on the disk"));
        }
    }
    packer.rest().iter().flatten().for_each(|block| writer.write(block).expect("room on the disk"));
    writer.finish().expect("room on the disk");
}
