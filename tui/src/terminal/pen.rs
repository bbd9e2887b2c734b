//! Writes a picture to a terminal: only the changes since the last one, in one piece.

use std::{
    cell::RefCell,
    io::{self, Write},
    rc::Rc,
};

use crossterm::{
    queue,
    terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate},
};
use ratatui::{Terminal, TerminalOptions, Viewport, backend::CrosstermBackend, layout::Rect};

use super::sixteen;
use crate::{app::App, palette::Depth, view};

#[derive(Debug)]
pub struct Pen<W> {
    terminal: Terminal<CrosstermBackend<OutputBuffer>>,
    sheet: OutputBuffer,
    to: W,
}

impl<W: Write> Pen<W> {
    /// A pen for the terminal of this process; the size is read at each redraw.
    pub fn new(to: W) -> io::Result<Self> {
        Self::with(to, Viewport::Fullscreen)
    }

    /// A pen for a terminal of this size, which need not be real.
    pub fn sized(to: W, width: u16, height: u16) -> io::Result<Self> {
        Self::with(to, Viewport::Fixed(Rect::new(0, 0, width, height)))
    }

    fn with(to: W, viewport: Viewport) -> io::Result<Self> {
        let sheet = OutputBuffer::default();
        let backend = CrosstermBackend::new(sheet.clone());
        let terminal = Terminal::with_options(backend, TerminalOptions { viewport })?;
        Ok(Self { terminal, sheet, to })
    }

    /// The terminal shows either the old picture or the new one.
    pub fn draw(&mut self, app: &mut App) -> io::Result<()> {
        app.settle();
        queue!(self.sheet, BeginSynchronizedUpdate)?;
        self.terminal.draw(|frame| {
            view::draw(app, frame.area(), frame.buffer_mut());
        })?;
        queue!(self.sheet, EndSynchronizedUpdate)?;
        let picture = self.sheet.take();
        let picture =
            if app.palette.depth() == Depth::Sixteen { sixteen::to_16_colours(&picture) } else { picture };
        self.to.write_all(&picture)?;
        self.to.flush()
    }

    /// The next redraw treats the terminal as empty.
    pub fn forget(&mut self) -> io::Result<()> {
        // Not `clear`, which asks the terminal for its cursor position and waits for the answer among the
        // keys.
        let area = self.terminal.size()?.into();
        self.terminal.resize(area)
    }
}

/// Buffers output until a picture is complete, because each small write would be a packet of an ssh session.
#[derive(Clone, Debug, Default)]
struct OutputBuffer(Rc<RefCell<Vec<u8>>>);

impl OutputBuffer {
    fn take(&self) -> Vec<u8> {
        self.0.take()
    }
}

impl Write for OutputBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Called several times within a picture, never at its end.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
