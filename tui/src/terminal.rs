//! The terminal: taken over, released while the process is stopped, and always restored.

mod background;
mod failure;
mod keys;
mod pen;
mod signals;
mod sixteen;
mod stop;

use std::{
    io::{self, Stdout, Write as _},
    mem::ManuallyDrop,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use crossterm::{
    clipboard::CopyToClipboard,
    cursor,
    event::{DisableMouseCapture, EnableMouseCapture},
    execute,
    style::force_color_output,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui::{buffer::Buffer, layout::Rect};

pub use background::theme;
pub use failure::failed;
pub use keys::{Keys, keys};
pub use pen::Pen;
pub use signals::{Request, Signals};

use crate::{app::App, hits::Hits, palette::Depth, view};

/// Largest number of bytes that are copied, because many terminals ignore longer texts completely.
const COPIED: usize = 64 << 10;

/// Whether the terminal is taken over. Restoring it twice would move the cursor back to its first position,
/// over later output.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether the terminal reports the mouse while it is taken over.
static MOUSE: AtomicBool = AtomicBool::new(false);

/// Restores the terminal when dropped. If the thread that has it panics, the terminal is restored before the
/// panic's message is printed.
#[derive(Debug)]
pub struct Screen {
    /// Never dropped. Its own drop writes to stderr if the terminal is gone, which panics if stderr was that
    /// terminal.
    pen: ManuallyDrop<Pen<Stdout>>,
}

impl Screen {
    /// # Errors If there is no terminal.
    pub fn take(depth: Depth) -> io::Result<Self> {
        // Crossterm reads NO_COLOR by itself; the decision made here, with --color, takes precedence.
        force_color_output(depth != Depth::None);
        failure::watch_for_panics();
        // From here on, the terminal is restored in any case.
        let screen = Self { pen: ManuallyDrop::new(Pen::new(io::stdout())?) };
        take()?;
        Ok(screen)
    }

    /// Draws the app in one piece: the terminal shows either the old picture or the new one.
    pub fn draw(&mut self, app: &mut App) -> io::Result<()> {
        // Another program owns the terminal now.
        if TAKEN.load(SeqCst) { self.pen.draw(app) } else { Ok(()) }
    }

    /// Redraws every cell the next time, because another program has written to the terminal.
    pub fn forget(&mut self) -> io::Result<()> {
        self.pen.forget()
    }

    /// Releases the terminal to the parent process, and stops until it continues this one (`fg`).
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        let stopped = stop::stop();
        self.resume()?;
        stopped
    }

    /// Takes the terminal over again, after another program had it.
    pub fn resume(&mut self) -> io::Result<()> {
        // A process that is stopped from outside cannot restore the terminal first, and the shell has changed
        // the terminal's settings since.
        give_back();
        take()?;
        self.forget()
    }

    /// Copies the text to the terminal's clipboard (OSC 52), over ssh too. Terminals without this function
    /// ignore it; all limit the length.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        let mut end = text.len().min(COPIED);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        execute!(io::stdout(), CopyToClipboard::to_clipboard_from(&text[..end]))
    }

    /// Positions on the screen, for the mouse.
    pub fn hits(&self, app: &App) -> io::Result<Hits> {
        let (width, height) = crossterm::terminal::size()?;
        let area = Rect::new(0, 0, width, height);
        Ok(view::draw(app, area, &mut Buffer::empty(area)))
    }

    /// Makes the terminal report the mouse.
    pub fn listen_to_mouse(&mut self) -> io::Result<()> {
        MOUSE.store(true, SeqCst);
        execute!(io::stdout(), EnableMouseCapture)
    }

    /// The picture that is on the screen.
    pub fn picture(&mut self, app: &App) -> io::Result<Buffer> {
        let (width, height) = crossterm::terminal::size()?;
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        view::draw(app, buffer.area, &mut buffer);
        Ok(buffer)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Takes the terminal over, with the mouse if requested; selecting text then needs Shift.
fn take() -> io::Result<()> {
    TAKEN.store(true, SeqCst);
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
    if MOUSE.load(SeqCst) { execute!(io::stdout(), EnableMouseCapture) } else { Ok(()) }
}

/// A terminal that is gone cannot be restored, so errors here are ignored.
fn give_back() {
    if TAKEN.swap(false, SeqCst) {
        if MOUSE.load(SeqCst) {
            let _ = execute!(io::stdout(), DisableMouseCapture);
        }
        let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
        let _ = io::stdout().flush();
        let _ = disable_raw_mode();
    }
}
