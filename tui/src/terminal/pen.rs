//! What puts a picture on a terminal: only what changed since the last one, in one piece.

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
    terminal: Terminal<CrosstermBackend<Sheet>>,
    sheet: Sheet,
    to: W,
}

impl<W: Write> Pen<W> {
    /// For the terminal this process runs on, as large as that is at each picture.
    pub fn new(to: W) -> io::Result<Self> {
        Self::with(to, Viewport::Fullscreen)
    }

    /// For one of this size, which may be none at all.
    pub fn sized(to: W, width: u16, height: u16) -> io::Result<Self> {
        Self::with(to, Viewport::Fixed(Rect::new(0, 0, width, height)))
    }

    fn with(to: W, viewport: Viewport) -> io::Result<Self> {
        let sheet = Sheet::default();
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
        let picture = if app.palette.depth() == Depth::Sixteen { sixteen::spell(&picture) } else { picture };
        self.to.write_all(&picture)?;
        self.to.flush()
    }

    /// The next picture is drawn as on an empty terminal.
    pub fn forget(&mut self) -> io::Result<()> {
        // Not `clear`, which asks the terminal where its cursor is and waits for the answer among the keys.
        let area = self.terminal.size()?.into();
        self.terminal.resize(area)
    }
}

/// Gathers what is written until a picture is whole: many small writes are as many packets of an ssh session.
#[derive(Clone, Debug, Default)]
struct Sheet(Rc<RefCell<Vec<u8>>>);

impl Sheet {
    fn take(&self) -> Vec<u8> {
        self.0.take()
    }
}

impl Write for Sheet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Asked for several times a picture, and never because it is whole.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
