//! A terminal with a simulated user: the test types keys, and reads the screen as a terminal shows it.

use std::{
    fs,
    io::{Read as _, Write as _},
    num::NonZeroU16,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use pty_process::{
    Size,
    blocking::{Pty, open},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{LocalModes, tcgetattr},
};
use vt100::{Callbacks, MouseProtocolMode, Parser, Screen};

use crate::program::{DEADLINE, until};

/// Interval between two checks of the screen.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// How long one poll of the terminal lasts. After it the thread checks whether it must end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

#[allow(missing_debug_implementations, reason = "neither pseudo-terminals nor parsers have one")]
pub struct Terminal {
    child: Child,
    /// `None` once the connection was cut.
    pty: Option<Arc<Pty>>,
    shown: Arc<Mutex<Shown>>,
    cut: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

/// What arrived over the connection.
struct Shown {
    parser: Parser<Clipboard>,
    /// Output of a frame that is not complete yet.
    held: Vec<u8>,
    bytes: usize,
}

/// What a program last copied to the clipboard, in base64 as it arrived.
#[derive(Debug, Default)]
struct Clipboard(String);

impl Callbacks for Clipboard {
    fn copy_to_clipboard(&mut self, _: &mut Screen, _: &[u8], data: &[u8]) {
        self.0 = String::from_utf8_lossy(data).into_owned();
    }
}

impl Terminal {
    /// Starts a program as the only one on a new terminal.
    ///
    /// # Panics
    /// If there is no pseudo-terminal, or the program cannot be started.
    #[track_caller]
    pub fn start(command: Command, columns: u16, lines: u16) -> Self {
        Self::start_on(command, columns, lines, None)
    }

    /// As [`Self::start`], on a terminal that answers OSC 11 with this colour, such as `ffff/ffff/ffff`.
    ///
    /// # Panics
    /// If there is no pseudo-terminal, or the program cannot be started.
    #[track_caller]
    pub fn start_on(mut command: Command, columns: u16, lines: u16, ground: Option<&'static str>) -> Self {
        let (pty, inside) = open().expect("a pseudo-terminal");
        pty.resize(Size::new(lines, columns)).expect("a terminal has a size");
        command.env("TERM", "xterm-256color").env("COLORTERM", "truecolor").env("LANG", "C.UTF-8");
        for name in ["NO_COLOR", "LC_ALL", "LC_CTYPE"] {
            command.env_remove(name);
        }
        let name = command.get_program().to_owned();
        let child = pty_process::blocking::Command::from(command)
            .spawn(inside)
            .unwrap_or_else(|error| panic!("{}: {error}", name.display()));
        let parser = Parser::new_with_callbacks(size(lines), size(columns), 0, Clipboard::default());
        let (pty, shown) =
            (Arc::new(pty), Arc::new(Mutex::new(Shown { parser, held: Vec::new(), bytes: 0 })));
        let cut = Arc::new(AtomicBool::new(false));
        let reader = thread::spawn({
            let (pty, shown, cut) = (Arc::clone(&pty), Arc::clone(&shown), Arc::clone(&cut));
            move || read(&pty, &shown, &cut, ground)
        });
        Self { child, pty: Some(pty), shown, cut, reader: Some(reader) }
    }

    fn pty(&self) -> &Pty {
        self.pty.as_ref().expect("the line was not cut")
    }

    /// Types these keys. Control keys are given as characters: `\r`, `\x1b`, `\x1a`.
    ///
    /// # Panics
    /// If the connection was cut.
    #[track_caller]
    pub fn keys(&self, keys: &str) -> &Self {
        (&mut self.pty()).write_all(keys.as_bytes()).expect("a terminal takes what is typed");
        self
    }

    /// # Panics
    /// If the connection was cut.
    #[track_caller]
    pub fn resize(&self, columns: u16, lines: u16) -> &Self {
        // Resizes the emulator first, so that it has the new size when the program draws for it.
        self.shown().parser.screen_mut().set_size(size(lines), size(columns));
        self.pty().resize(Size::new(lines, columns)).expect("a terminal has a size");
        self
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The screen without trailing blanks, because written and unwritten blanks look the same.
    pub fn text(&self) -> String {
        let contents = self.shown().parser.screen().contents();
        contents.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
    }

    /// The text that was copied last, decoded. Empty if nothing was copied.
    pub fn copied(&self) -> String {
        decoded(&self.shown().parser.callbacks().0)
    }

    /// The colour of the letter at this place.
    pub fn colour(&self, column: u16, line: u16) -> vt100::Color {
        self.shown().parser.screen().cell(line, column).map_or_else(Default::default, vt100::Cell::fgcolor)
    }

    /// The number of bytes that have arrived over the connection so far.
    pub fn bytes(&self) -> usize {
        self.shown().bytes
    }

    /// Waits until `looks` accepts the screen.
    ///
    /// # Panics
    /// At the deadline, with what the screen shows.
    #[track_caller]
    pub fn wait(&self, what: &str, looks: impl Fn(&str) -> bool) -> &Self {
        let begun = Instant::now();
        loop {
            let screen = self.text();
            if looks(&screen) {
                return self;
            }
            assert!(
                begun.elapsed() < DEADLINE,
                "waited {DEADLINE:?} for {what}; the screen shows:\n{screen}"
            );
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until this text is on the screen.
    #[track_caller]
    pub fn shows(&self, text: &str) -> &Self {
        self.wait(&format!("{text:?}"), |screen| screen.contains(text))
    }

    /// Waits until this text is not on the screen.
    #[track_caller]
    pub fn hides(&self, text: &str) -> &Self {
        self.wait(&format!("no {text:?}"), |screen| !screen.contains(text))
    }

    /// The line with the cursor.
    pub fn cursor_line(&self) -> usize {
        self.shown().parser.screen().cursor_position().0.into()
    }

    /// The last line with this text.
    ///
    /// # Panics
    /// If the text is not on the screen.
    #[track_caller]
    pub fn line_of(&self, text: &str) -> usize {
        let screen = self.text();
        let line = screen.lines().collect::<Vec<_>>().iter().rposition(|line| line.contains(text));
        line.unwrap_or_else(|| panic!("{text:?} is not on the screen:\n{screen}"))
    }

    /// How the terminal differs from one that a shell uses, in words. Empty if it does not differ.
    pub fn disorder(&self) -> String {
        let modes = tcgetattr(self.pty()).expect("a terminal has modes").local_modes;
        let is_raw = !modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        let pastes = self.shown().parser.screen().bracketed_paste();
        reported(&[(is_raw, "the terminal is raw"), (pastes, "pastes are bracketed")])
            + &self.disorder_of_screen()
    }

    /// As [`Self::disorder`], without the modes that a shell changes while it edits a line.
    fn disorder_of_screen(&self) -> String {
        let shown = self.shown();
        let screen = shown.parser.screen();
        let colours = [screen.fgcolor(), screen.bgcolor()];
        reported(&[
            (screen.alternate_screen(), "the alternate screen is up"),
            (screen.hide_cursor(), "the cursor is hidden"),
            (screen.application_cursor() || screen.application_keypad(), "keys are an application's"),
            (screen.mouse_protocol_mode() != MouseProtocolMode::None, "the mouse is reported"),
            (colours != [vt100::Color::Default; 2], "a colour is left on"),
        ])
    }

    /// Waits until the terminal is as a shell left it.
    ///
    /// # Panics
    /// At the deadline, with the differences.
    #[track_caller]
    pub fn is_given_back(&self) -> &Self {
        self.is_orderly(Self::disorder)
    }

    /// As [`Self::is_given_back`], while a shell edits a line on the terminal.
    ///
    /// # Panics
    /// At the deadline, with the differences.
    #[track_caller]
    pub fn is_given_back_to_a_shell(&self) -> &Self {
        self.is_orderly(Self::disorder_of_screen)
    }

    #[track_caller]
    fn is_orderly(&self, disorder: impl Fn(&Self) -> String) -> &Self {
        let begun = Instant::now();
        loop {
            let found = disorder(self);
            if found.is_empty() {
                return self;
            }
            assert!(begun.elapsed() < DEADLINE, "the terminal was not given back:\n{found}");
            thread::yield_now();
        }
    }

    /// Writes on the screen as another program would.
    ///
    /// # Panics
    /// If the program has ended.
    #[track_caller]
    pub fn spoil(&self, text: &str) -> &Self {
        fs::write(format!("/proc/{}/fd/1", self.pid()), text).expect("the program has its terminal open");
        self
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, given by its name, to the program.
    ///
    /// # Panics
    /// If the program has ended.
    #[track_caller]
    pub fn signal(&self, name: &str) -> &Self {
        self.send(name, &self.pid().to_string())
    }

    /// The program is a shell: sends a signal to the process that it has started.
    ///
    /// # Panics
    /// If it has started no process, or more than one.
    #[track_caller]
    pub fn signal_child(&self, name: &str) -> &Self {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        self.send(name, children.trim())
    }

    #[track_caller]
    fn send(&self, signal: &str, pid: &str) -> &Self {
        let sent = Command::new("kill").args(["-s", signal, pid]).stderr(Stdio::null()).status();
        assert!(sent.is_ok_and(|sent| sent.success()), "no process {pid:?} to signal");
        self
    }

    /// Closes the connection, as if it were lost.
    pub fn cut(&mut self) {
        self.cut.store(true, Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.pty = None;
    }

    /// Waits for the program to end.
    ///
    /// # Panics
    /// At the deadline.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        until("the program on the terminal to end", || {
            self.child.try_wait().expect("it is this process's child")
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.cut();
    }
}

fn reported(found: &[(bool, &str)]) -> String {
    let found = found.iter().filter(|(is_so, _)| *is_so);
    found.fold(String::new(), |reported, (_, what)| reported + what + "\n")
}

fn size(cells: u16) -> NonZeroU16 {
    NonZeroU16::new(cells).expect("a terminal has cells")
}

/// Decodes base64.
fn decoded(text: &str) -> String {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let sixes: Vec<u32> = text.bytes().filter_map(value).map(u32::from).collect();
    let bytes: Vec<u8> = sixes
        .chunks(4)
        .flat_map(|four| {
            let word = four.iter().enumerate().fold(0, |word, (at, six)| word | six << (18 - 6 * at));
            word.to_be_bytes()[1..four.len()].to_vec()
        })
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A program's requests to the terminal: its type, and the colour of its background.
const WHAT: &[u8] = b"\x1b[c";
const GROUND: &[u8] = b"\x1b]11;?";

/// The terminal's answers. Without a colour it answers only the question for its type.
fn answer(asked: &[u8], ground: Option<&str>) -> String {
    let ground = ground.filter(|_| find(asked, GROUND).is_some());
    let ground = ground.map_or_else(String::new, |ground| format!("\x1b]11;rgb:{ground}\x1b\\"));
    if find(asked, WHAT).is_some() { ground + "\x1b[?62;22c" } else { ground }
}

fn read(pty: &Pty, shown: &Mutex<Shown>, cut: &AtomicBool, ground: Option<&str>) {
    let mut bytes = [0; 16 << 10];
    while !cut.load(Relaxed) {
        let mut ready = [PollFd::new(pty, PollFlags::IN)];
        if !matches!(poll(&mut ready, Some(&LOOK)), Ok(1..)) {
            continue;
        }
        // Once the program has closed its end, reading only returns an error.
        let Ok(length @ 1..) = (&mut &*pty).read(&mut bytes) else {
            thread::yield_now();
            continue;
        };
        let answer = answer(&bytes[..length], ground);
        // A program that has ended needs no answer.
        let _ = (&mut &*pty).write_all(answer.as_bytes());
        shown.lock().unwrap_or_else(PoisonError::into_inner).take(&bytes[..length]);
    }
}

/// Begin and end of a frame: a terminal shows nothing new between them.
const BEGIN: &[u8] = b"\x1b[?2026h";
const END: &[u8] = b"\x1b[?2026l";

impl Shown {
    fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.held.extend_from_slice(bytes);
        while let Some(end) = self.whole() {
            self.parser.process(&self.held[..end]);
            self.held.drain(..end);
        }
    }

    /// Length of the held output that can be shown: up to the end of a frame, or to the begin of the next.
    fn whole(&self) -> Option<usize> {
        let held = &self.held[..];
        if held.starts_with(BEGIN) {
            return find(held, END).map(|at| at + END.len());
        }
        // The sequence that begins a frame may have arrived in part.
        let part = (1..BEGIN.len()).rev().find(|&length| held.ends_with(&BEGIN[..length])).unwrap_or(0);
        let end = find(held, BEGIN).unwrap_or(held.len() - part);
        (end > 0).then_some(end)
    }
}

fn find(bytes: &[u8], sought: &[u8]) -> Option<usize> {
    bytes.windows(sought.len()).position(|window| window == sought)
}
