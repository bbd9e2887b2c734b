//! Reads memory that may be unmapped, through the kernel, which returns an error where a direct read would
//! crash.

/// Copies memory of the process from this address, up to the first unreadable page. Within one page, it
/// copies all or nothing. It copies nothing if a sandbox refuses the call. Returns the number of bytes.
/// `errno` is that of the call.
pub(crate) fn peek(at: usize, into: &mut [u8]) -> usize {
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(at), iov_len: into.len() };
    // SAFETY: the kernel writes only to `into`, and checks the address that it reads.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const here, 1, &raw const there, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}

/// The word at this address, if it is readable.
pub(crate) fn word(at: usize) -> Option<usize> {
    let mut bytes = [0; size_of::<usize>()];
    (peek(at, &mut bytes) == bytes.len()).then(|| usize::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_memory_is_not_read() {
        let number = 77_usize;
        assert_eq!(word((&raw const number).expose_provenance()), Some(77));
        for wild in [0, 1, 0xffff_ffff_ffff_fff0, 0x5555_0000_0000_0000] {
            assert_eq!(word(wild), None, "{wild:#x}");
        }
    }
}
