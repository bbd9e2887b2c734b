//! Returns freed memory to the system, because a collector outlives many jobs.

use std::time::Duration;

use xpu_wire::unit::Moment;

/// Interval of returning memory. This takes milliseconds if much was freed.
const EVERY: Duration = Duration::from_mins(1);

/// Arenas of the C library. Each keeps its freed memory, and the default is eight per core.
const ARENAS: libc::c_int = 2;

/// Larger allocations get a separate mapping, which is unmapped when they are freed.
const OWN_MAPPING: libc::c_int = 256 << 10;

/// Limits the arenas. Must be called before other threads start.
pub fn prepare() {
    for (which, value) in [(libc::M_ARENA_MAX, ARENAS), (libc::M_MMAP_THRESHOLD, OWN_MAPPING)] {
        // SAFETY: sets a parameter of the allocator, which ignores a value that it does not accept.
        unsafe { libc::mallopt(which, value) };
    }
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    returned: Moment,
}

impl Memory {
    /// Returns free memory at intervals.
    pub(crate) fn tend(&mut self, now: Moment) {
        // The first condition holds if the clock was set back.
        if now < self.returned || now.since(self.returned) >= EVERY {
            self.returned = now;
            // SAFETY: malloc_trim has no precondition, and locks what it touches.
            unsafe { libc::malloc_trim(0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident() -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    #[test]
    fn freed_memory_below_used_memory_is_returned() {
        const BLOCK: usize = 4000;
        const BLOCKS: usize = 50_000;
        let before = resident();
        let mut blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; BLOCK]).collect();
        let last = blocks.pop();
        drop(blocks);
        let held = resident() - before;
        assert!(held > (BLOCKS * BLOCK / 2) as u64, "{held}: what stays keeps the rest");
        Memory::default().tend(Moment::now());
        let held = resident().saturating_sub(before);
        assert!(held < (BLOCKS * BLOCK / 4) as u64, "{held}");
        drop(last);
    }
}
