//! How a rank ended, in words.

use std::fmt::Write as _;

use super::{
    ABORT, ApiError, Ending, FailedKernel, FatalSignal, PythonException, RankExit, RefusedMemory, TERM,
};

/// Number of innermost frames that a sentence names.
const NAMED: usize = 3;

/// Characters of an exception's message in a sentence.
const BRIEF: usize = 160;

impl RankExit {
    /// The rank's end, as a sentence without its subject: `raised ValueError: ...`.
    pub fn sentence(&self) -> String {
        let mut text = match &self.ending {
            Ending::OutOfMemory { certain: true, source } => {
                format!("was OOM-killed by the kernel ({source})")
            }
            Ending::OutOfMemory { certain: false, source } => {
                format!("was killed, likely by the OOM killer ({source})")
            }
            Ending::Signal(signal) => signal.sentence(),
            Ending::Code(code) => match &self.exception {
                Some(exception) => format!("raised {} and exited with code {code}", exception.sentence()),
                None => format!("exited with code {code}"),
            },
            Ending::Unnoted => match &self.exception {
                Some(exception) => format!("raised {} and ended", exception.sentence()),
                None => "ended without a record: SIGKILL, or an unknown signal".to_owned(),
            },
        };
        let shown = &self.frames()[self.frames().len().saturating_sub(NAMED)..];
        for (index, frame) in shown.iter().rev().enumerate() {
            let file = frame.file.rsplit('/').next().unwrap_or_default();
            let line = if frame.line > 0 { format!(":{}", frame.line) } else { String::new() };
            let joint = if index == 0 { ", in" } else { " <" };
            let _ = write!(text, "{joint} {} ({file}{line})", frame.function);
        }
        if let Some(error) = self.error.as_ref().filter(|error| error.lasting || self.explains(error)) {
            let ApiError { function, code, .. } = error;
            let name = crate::error_name::of(function, *code);
            let _ = write!(text, "; before that {function} failed with {code}{name}");
            if let Some(memory) = &self.memory {
                let _ = write!(text, ": {}", memory.sentence());
                if let Some(unused) = self.fragmented() {
                    let pieces = "in blocks that are too small or reserved for other streams";
                    let _ =
                        write!(text, "; PyTorch had {:.2} GiB reserved and unused, {pieces}", gib(unused));
                }
            }
        }
        if let Some(kernel) = &self.kernel {
            let _ = write!(text, "; {}", kernel.sentence());
        }
        text
    }
}

impl FailedKernel {
    pub(super) fn sentence(&self) -> String {
        let Self { device, name, error, block, .. } = self;
        let name = if name.is_empty() { "a kernel of no loaded module" } else { name };
        let mut text = format!("on GPU {device}, {name} failed: {error}{}", kernel_block(*block));
        if let Some((grid, block)) = self.grid_size.zip(self.block_size) {
            let _ = write!(text, ", {}, {}", kernel_size(grid, block), kernel_extent(self.blocks, self.sms));
        }
        text
    }
}

impl RefusedMemory {
    /// `requested 2.00 GiB; the process held 70.10 GiB, 9.10 GiB more than at step 10, including 8.70 GiB
    /// allocated at train.py:42 keep (435 times, last after step 311); 1.20 of 79.60 GiB of its GPU were
    /// free; NCCL took 1.50 GiB`
    fn sentence(&self) -> String {
        let mut text =
            format!("requested {:.2} GiB; the process held {:.2} GiB", gib(self.requested), gib(self.held));
        if let Some((step, before)) = self.held_at {
            let (grown, word) = match self.held.checked_sub(before) {
                Some(more) => (more, "more"),
                None => (before - self.held, "less"),
            };
            let _ = write!(text, ", {:.2} GiB {word} than at step {}", gib(grown), step.0);
        }
        // If the memory shrank, there is no call site to name.
        let shrank = self.held_at.is_some_and(|(_, before)| self.held <= before);
        let first = self.sites.first().filter(|_| !shrank);
        if let Some((site, place)) = first.and_then(|site| Some((site, site.site.place()?))) {
            let bytes = gib(site.grown().unwrap_or(site.held));
            let times =
                if site.allocations == 1 { "once".to_owned() } else { format!("{} times", site.allocations) };
            let last = site.last_step.0;
            let _ = write!(
                text,
                ", including {bytes:.2} GiB allocated at {place} ({times}, last after step {last})"
            );
        }
        let size = self.used.map(|(_, size)| size);
        match (self.free, self.used) {
            (Some(free), _) => {
                let of = size.map_or_else(String::new, |size| format!(" of {:.2}", gib(size)));
                let _ = write!(text, "; {:.2}{of} GiB of its GPU were free", gib(free));
            }
            (None, Some((used, size))) => {
                let _ = write!(text, "; {:.2} of {:.2} GiB of its GPU were in use", gib(used), gib(size));
            }
            (None, None) => {}
        }
        if let Some(nccl) = self.nccl.filter(|&nccl| nccl > 0) {
            let _ = write!(text, "; NCCL took {:.2} GiB", gib(nccl));
        }
        text
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// ` in block 1,0,0`; nothing if it is unknown.
pub fn kernel_block(block: Option<[u32; 3]>) -> String {
    block.map_or_else(String::new, |[x, y, z]| format!(" in block {x},{y},{z}"))
}

/// `24 blocks on 24 SMs`
pub fn kernel_extent(blocks: u32, sms: u32) -> String {
    let counted = |number: u32, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    format!("{} on {}", counted(blocks, "block"), counted(sms, "SM"))
}

/// `grid 24x1x1, block 544x1x1`
pub fn kernel_size(grid: [u32; 3], block: [u32; 3]) -> String {
    let of = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
    format!("grid {}, block {}", of(grid), of(block))
}

impl FatalSignal {
    pub(super) fn sentence(&self) -> String {
        let likely = if self.certain { "" } else { ", it seems," };
        let mut text = format!("was ended{likely} by {}", signal_name(self.number));
        match (self.address, self.sender) {
            (Some(address), _) => drop(write!(text, " at address {address:#x}")),
            (None, Some(sender)) => drop(write!(text, " from process {sender}")),
            (None, None) => {}
        }
        if !self.thread_name.is_empty() {
            let _ = write!(text, " in thread {}", self.thread_name);
        }
        text
    }
}

impl PythonException {
    pub(super) fn sentence(&self) -> String {
        let first = self.message.lines().next().unwrap_or_default();
        let brief: String = first.chars().take(BRIEF).collect();
        let more = if first.chars().count() > BRIEF { "..." } else { "" };
        let colon = if brief.is_empty() { "" } else { ": " };
        format!("{}{colon}{brief}{more}", self.kind)
    }
}

/// `SIGSEGV`
pub fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        ABORT => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        TERM => "SIGTERM",
        24 => "SIGXCPU",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}
