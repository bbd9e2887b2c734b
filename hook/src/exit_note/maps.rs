//! Reads `/proc/self/maps` in a signal handler: allocates nothing, and uses only system calls.

use std::cell::UnsafeCell;

use xpu_wire::ledger::Bytes;

/// Longest line that is read, and so the longest path.
const LINE: usize = 1024;

/// Only the holder of the claim on the fault note uses it.
struct Buffer(UnsafeCell<[u8; LINE]>);

// SAFETY: one thread at a time has the claim.
unsafe impl Sync for Buffer {}

static BUFFER: Buffer = Buffer(UnsafeCell::new([0; LINE]));

/// Notes the lines of files with code. Returns the end of the readable mapping that contains `address`.
///
/// # Safety
/// The caller holds the claim on the note of a fault.
pub(super) unsafe fn note<const WORDS: usize>(modules: &Bytes<WORDS>, address: u64) -> Option<u64> {
    modules.clear();
    // `open64`, `read` and `close` are direct system calls here (`system.rs`): in the C library's functions,
    // a cancelled thread would end.
    // SAFETY: the name ends with NUL.
    let file = unsafe { libc::open64(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: by the caller's promise, nobody else uses it.
    let buffer = unsafe { &mut *BUFFER.0.get() };
    let (mut filled, mut end, mut too_long) = (0, None, false);
    loop {
        let free = &mut buffer[filled..];
        // SAFETY: the pointer and length are those of `free`.
        let read = unsafe { libc::read(file, free.as_mut_ptr().cast(), free.len()) };
        let Ok(read @ 1..) = usize::try_from(read) else { break };
        filled += read;
        let mut from = 0;
        while let Some(length) = buffer[from..filled].iter().position(|&byte| byte == b'\n') {
            let line = &buffer[from..=from + length];
            if !std::mem::take(&mut too_long) {
                take(line, modules, address, &mut end);
            }
            from += length + 1;
        }
        buffer.copy_within(from..filled, 0);
        filled -= from;
        if filled == LINE {
            (filled, too_long) = (0, true);
        }
    }
    // SAFETY: it was opened here.
    unsafe { libc::close(file) };
    end
}

/// `55d8c9b0f000-55d8c9b31000 r-xp 00002000 fe:00 1234   /usr/bin/python3`
fn take<const WORDS: usize>(line: &[u8], modules: &Bytes<WORDS>, address: u64, end: &mut Option<u64>) {
    let Some((from, rest)) = hexadecimal(line) else { return };
    let Some((to, rest)) = rest.strip_prefix(b"-").and_then(hexadecimal) else { return };
    let Some([b' ', readable, _, executable, ..]) = rest.first_chunk::<4>() else { return };
    if (from..to).contains(&address) && *readable == b'r' {
        *end = Some(to);
    }
    if *executable == b'x' && rest.contains(&b'/') {
        modules.push(line);
    }
}

fn hexadecimal(text: &[u8]) -> Option<(u64, &[u8])> {
    let length =
        text.iter().position(|byte| !byte.is_ascii_hexdigit()).filter(|length| (1..=16).contains(length))?;
    let digit = |byte: u8| u64::from(if byte < b'a' { byte & 15 } else { byte - b'a' + 10 });
    Some((text[..length].iter().fold(0, |sum, &byte| sum << 4 | digit(byte)), &text[length..]))
}

#[cfg(test)]
mod tests {
    use xpu_wire::ledger::LedgerPage;

    use super::*;

    #[test]
    fn code_of_files_is_noted_and_the_stack_is_found() {
        let page = LedgerPage::create().unwrap();
        let fault = page.ledger().last.fault.claim().unwrap();
        let (_, modules) = fault.parts();
        let here = 0_u64;
        let address = std::ptr::from_ref(&here).addr() as u64;
        // SAFETY: the claim is held, and no other test of this process takes one.
        let end = unsafe { note(modules, address) }.unwrap();
        assert!(end > address && end - address < 1 << 30);
        let text = String::from_utf8(modules.read()).unwrap();
        let lines: Vec<_> = text.lines().map(|line| line.trim_start_matches('\0')).collect();
        assert!(lines.iter().any(|line| line.contains("libc.so.6")), "{text}");
        assert!(lines.iter().all(|line| line.contains('x') && line.contains('/')), "{text}");
    }
}
