//! The native call site of an NCCL call: the file that contains its return address, and the offset in that
//! file.

use std::{
    ffi::CStr,
    io::{Cursor, Write as _},
};

use xpu_wire::ledger::{NativeText, Record};

use crate::interpose::symbol::{self, Object, each};

/// The program's own file. The loader has no name for it.
const PROGRAM: &CStr = c"/proc/self/exe";

/// Maximum number of bytes that are read of a program's path.
const PATH: usize = 256;

/// Bytes of `+0x` and the longest offset.
const OFFSET: usize = 19;

/// Notes the site of a call that returns to `address`, if it is new.
#[inline]
pub(crate) fn note(record: &Record, address: usize) {
    if address != 0 {
        record.native_sites.note(address as u64, symbol::generation(), |into| describe(address, into));
    }
}

/// Writes the site of a call that returns to `address`.
#[cold]
#[inline(never)]
pub(super) fn write_to(text: &NativeText, address: usize) {
    let mut into = [0; NativeText::CAPACITY];
    let length = describe(address, &mut into);
    text.write(&into[..length]);
}

/// Writes `libtorch_cuda.so+0x1a2b3c`, and returns its length. 0 for code outside of any file.
#[cold]
fn describe(address: usize, into: &mut [u8]) -> usize {
    let mut length = 0;
    each(|object| {
        let Some(offset) = object.offset_of(address) else { return false };
        length = write(object, offset, into).unwrap_or(0);
        true
    });
    length
}

fn write(object: &Object, offset: usize, into: &mut [u8]) -> Option<usize> {
    let mut path = [0; PATH];
    let name = match object.file_name() {
        b"" => program(&mut path),
        name => name,
    };
    let longest = into.len().saturating_sub(OFFSET);
    let mut text = Cursor::new(into);
    text.write_all(&name[..name.len().min(longest)]).ok()?;
    write!(text, "+{offset:#x}").ok()?;
    usize::try_from(text.position()).ok()
}

/// The last part of the program's path.
fn program(path: &mut [u8; PATH]) -> &[u8] {
    // SAFETY: the name ends with NUL, and the length is that of the buffer.
    let read = unsafe { libc::readlink(PROGRAM.as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    let path = &path[..usize::try_from(read).unwrap_or(0)];
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(address: usize) -> String {
        let mut into = [0; 64];
        let length = describe(address, &mut into);
        String::from_utf8_lossy(&into[..length]).into_owned()
    }

    #[test]
    fn code_is_named_by_its_file_and_the_offset_in_it() {
        let own = std::env::current_exe().unwrap();
        let text = described(describe as *const () as usize);
        let (file, offset) = text.split_once("+0x").unwrap();
        // A name that is too long is cut; the offset is complete.
        assert!(own.file_name().unwrap().to_string_lossy().starts_with(file) && !file.is_empty(), "{text}");
        assert!(usize::from_str_radix(offset, 16).unwrap() > 0, "{text}");
        assert!(described(libc::getpid as *const () as usize).contains("libc.so.6+0x"));
        assert_eq!(described(&raw const text as usize), "", "a stack is in no file");
    }
}
