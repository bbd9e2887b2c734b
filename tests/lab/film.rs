//! Films a job: as an asciicast v2 file, which asciinema plays, and as an SVG that is animated wherever SVGs
//! are shown.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write},
    rc::Rc,
    time::Duration,
};

use crossterm::style::force_color_output;
use xpu_tui::terminal::Pen;

use crate::Lab;

/// A frame's number is a bit of a `u64`, which limits the length of a film.
const LONGEST: usize = 64;

pub struct Film {
    size: (u16, u16),
    pen: Pen<Output>,
    output: Output,
    /// For each frame: how long it is shown, what is written to a terminal, and its picture.
    frames: Vec<(Duration, String, String)>,
}

impl std::fmt::Debug for Film {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Film").field("frames", &self.frames.len()).finish_non_exhaustive()
    }
}

impl Film {
    /// # Panics
    /// Never: writing to memory does not fail.
    pub fn new(width: u16, height: u16) -> Self {
        // Forces colours, whatever terminal the test runs on.
        force_color_output(true);
        let output = Output::default();
        let pen = Pen::sized(output.clone(), width, height).expect("memory takes all");
        Self { size: (width, height), pen, output, frames: Vec::new() }
    }

    /// Adds a frame with the current screen, shown for this long.
    ///
    /// # Panics
    /// If the film has too many frames.
    pub fn shoot(&mut self, lab: &mut Lab, shown: Duration) -> &mut Self {
        assert!(self.frames.len() < LONGEST, "a film has {LONGEST} frames at most");
        self.pen.draw(lab.app()).expect("memory takes all");
        let written = String::from_utf8_lossy(&self.output.0.take()).into_owned();
        let picture = lab.screen(self.size.0, self.size.1).svg();
        self.frames.push((shown, written, picture));
        self
    }

    fn length(&self) -> Duration {
        self.frames.iter().map(|(shown, ..)| *shown).sum()
    }

    /// When each frame begins, and at last the end of the film.
    fn times(&self) -> Vec<Duration> {
        let begins = self.frames.iter().scan(Duration::ZERO, |at, (shown, ..)| {
            let begin = *at;
            *at += *shown;
            Some(begin)
        });
        begins.chain([self.length()]).collect()
    }

    /// The film in the format of `asciinema play`.
    ///
    /// # Panics
    /// Never: any text can be written as JSON.
    pub fn cast(&self, title: &str) -> String {
        let json = |text: &str| serde_json::to_string(text).expect("text is JSON");
        let (width, height) = self.size;
        let mut cast = format!(
            "{{\"version\": 2, \"width\": {width}, \"height\": {height}, \"title\": {}}}\n",
            json(title)
        );
        for (at, (_, written, _)) in self.times().iter().zip(&self.frames) {
            let _ = writeln!(cast, "[{:.1}, \"o\", {}]", at.as_secs_f64(), json(written));
        }
        // An empty event at the end keeps the last frame on the screen for its time.
        let _ = writeln!(cast, "[{:.1}, \"o\", \"\"]", self.length().as_secs_f64());
        cast
    }

    /// All frames in one SVG. An element that several frames share is written once, and is visible while one
    /// of these frames is shown.
    pub fn svg(&self) -> String {
        let mut head = String::new();
        // Backgrounds lie below blocks, and blocks below letters, whichever frames they belong to.
        let mut pieces: BTreeMap<(u8, &str), u64> = BTreeMap::new();
        for (frame, (_, _, picture)) in self.frames.iter().enumerate() {
            let mut lines = picture.lines();
            head = lines.by_ref().take(2).fold(String::new(), |head, line| head + line + "\n");
            for line in lines.filter(|line| *line != "</svg>") {
                *pieces.entry((depth(line), line)).or_default() |= 1 << frame;
            }
        }
        let mut groups: BTreeMap<(u8, u64), String> = BTreeMap::new();
        for ((depth, piece), frames) in pieces {
            let group = groups.entry((depth, frames)).or_default();
            group.push_str(piece);
            group.push('\n');
        }
        let always = u64::MAX >> (LONGEST - self.frames.len().max(1));
        let mut svg =
            head + &self.style(groups.keys().map(|(_, frames)| *frames).filter(|frames| *frames != always));
        for ((_, frames), group) in groups {
            let _ = if frames == always {
                writeln!(svg, "<g>\n{group}</g>")
            } else {
                writeln!(svg, "<g class=\"f f{frames:x}\">\n{group}</g>")
            };
        }
        svg + "</svg>\n"
    }

    /// When each group is visible. With reduced motion the last frame is shown.
    fn style(&self, groups: impl Iterator<Item = u64>) -> String {
        let (times, length) = (self.times(), self.length().as_secs_f64());
        let mut style = format!("<style>.f{{visibility:hidden;animation:{length}s step-end infinite}}\n");
        let mut groups: Vec<_> = groups.collect();
        groups.sort_unstable();
        groups.dedup();
        let mut last = String::new();
        for frames in groups {
            let seen = |frame: usize| frames >> frame & 1 == 1;
            let _ = write!(style, ".f{frames:x}{{animation-name:k{frames:x}}}@keyframes k{frames:x}{{");
            for (frame, at) in times.iter().enumerate().take(self.frames.len()) {
                if frame == 0 || seen(frame) != seen(frame - 1) {
                    let share = at.as_secs_f64() / length * 100.0;
                    let word = if seen(frame) { "visible" } else { "hidden" };
                    let _ = write!(style, "{share:.2}%{{visibility:{word}}}");
                }
            }
            style.push_str("}\n");
            if seen(self.frames.len() - 1) {
                let _ = write!(last, ".f{frames:x}{{visibility:visible}}");
            }
        }
        let _ =
            writeln!(style, "@media (prefers-reduced-motion:reduce){{.f{{animation:none}}{last}}}</style>");
        style
    }
}

/// The layer of an element.
fn depth(piece: &str) -> u8 {
    match piece {
        rect if rect.starts_with("<rect") && rect.contains("height=\"16\"") => 0,
        rect if rect.starts_with("<rect") => 1,
        _ => 2,
    }
}

/// Collects what a terminal would receive.
#[derive(Clone, Debug, Default)]
struct Output(Rc<RefCell<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
