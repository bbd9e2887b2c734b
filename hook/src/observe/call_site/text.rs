//! Frames as text, made on the stack of their own thread.

use std::io::{Cursor, Write as _};

use xpu_wire::ledger::SiteText;

use super::layout::Layout;
use crate::process::peek;

/// Longest function name, and the kept end of a file's path.
const FUNCTION: usize = 40;
const FILE: usize = 64;

/// Offsets in `PyASCIIObject`: of the length, and of the bits that describe the representation.
const LENGTH: usize = 16;
const STATE: usize = 32;
/// The bits of a compact ASCII text.
const PLAIN: usize = 0b110_0000;

pub(super) struct Buffer(Cursor<[u8; SiteText::CAPACITY]>);

impl Buffer {
    pub(super) fn new() -> Self {
        Self(Cursor::new([0; SiteText::CAPACITY]))
    }

    /// Adds a frame, if it fits completely.
    pub(super) fn frame(&mut self, layout: &Layout, code: usize, line: i32) {
        let (mut function, mut file) = ([0; FUNCTION], [0; FILE]);
        let function = text(layout, code + layout.name, &mut function, false);
        let file = text(layout, code + layout.file, &mut file, true);
        let before = self.0.position();
        let file = if file.len() < FILE { file } else { after_a_slash(file) };
        let written = self
            .0
            .write_all(function)
            .and_then(|()| self.0.write_all(b"\0"))
            .and_then(|()| self.0.write_all(file))
            .and_then(|()| writeln!(self.0, "\0{}", line.max(0)));
        if written.is_err() {
            self.0.set_position(before);
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0.get_ref()[..self.0.position() as usize]
    }
}

/// The rest of a cut path, from the first whole folder on.
fn after_a_slash(path: &[u8]) -> &[u8] {
    let slash = path.iter().position(|&byte| byte == b'/');
    slash.map_or(path, |slash| &path[slash + 1..])
}

/// The beginning or the end of the text that the word at `at` points to. `?` for a text with non-ASCII
/// characters.
fn text<'a>(layout: &Layout, at: usize, into: &'a mut [u8], end: bool) -> &'a [u8] {
    let read = || {
        let object = peek::word(at).filter(|object| super::is_place(*object))?;
        let plain = peek::word(object + STATE)? & PLAIN == PLAIN;
        let length = peek::word(object + LENGTH)?.min(1 << 20);
        plain.then_some((object + layout.letters, length))
    };
    let Some((letters, length)) = read() else { return b"?" };
    let kept = length.min(into.len());
    let from = if end { letters + length - kept } else { letters };
    if peek::peek(from, &mut into[..kept]) != kept {
        return b"?";
    }
    // Control characters separate frames in the site's text.
    for byte in &mut into[..kept] {
        if byte.is_ascii_control() {
            *byte = b' ';
        }
    }
    &into[..kept]
}
