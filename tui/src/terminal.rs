//! The terminal: taken, and always given back.
#![forbid(unsafe_code)]

use std::{
    io::{self, Write as _},
    mem::ManuallyDrop,
};

use crossterm::{
    clipboard::CopyToClipboard,
    cursor, execute,
    style::force_color_output,
    terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate},
};
use ratatui::{DefaultTerminal, buffer::Buffer, layout::Rect};

use crate::{app::App, palette::Depth, view};

/// Bytes that are copied at most: of longer texts many terminals take nothing.
const COPIED: usize = 64 << 10;

/// Gives the terminal back when it goes; a panic does so before its message is printed.
#[derive(Debug)]
pub struct Screen {
    /// Never dropped: its own drop complains on stderr when the terminal is gone, and where stderr was that terminal
    /// the complaint is a panic.
    terminal: ManuallyDrop<DefaultTerminal>,
}

impl Screen {
    /// # Errors
    /// Where there is no terminal.
    pub fn take(depth: Depth) -> io::Result<Self> {
        // Crossterm reads NO_COLOR by itself; what was decided here, with --color, goes before it.
        force_color_output(depth != Depth::None);
        Ok(Self { terminal: ManuallyDrop::new(ratatui::try_init()?) })
    }

    /// Draws the app whole: the terminal shows either the old picture or the new one.
    pub fn draw(&mut self, app: &mut App) -> io::Result<()> {
        app.settle();
        execute!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(|frame| view::draw(app, frame.area(), frame.buffer_mut()))?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// Puts the text where the terminal pastes from (OSC 52), also over ssh. Terminals that cannot do it ignore it; none takes
    /// any length.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        let mut end = text.len().min(COPIED);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        execute!(self.terminal.backend_mut(), CopyToClipboard::to_clipboard_from(&text[..end]))
    }

    /// The picture that is on the screen.
    pub fn picture(&mut self, app: &App) -> io::Result<Buffer> {
        let size = self.terminal.size()?;
        let mut buffer = Buffer::empty(Rect::new(0, 0, size.width, size.height));
        view::draw(app, buffer.area, &mut buffer);
        Ok(buffer)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone cannot be given back.
        let _ = ratatui::try_restore();
        let _ = execute!(io::stdout(), cursor::Show);
        let _ = io::stdout().flush();
    }
}
