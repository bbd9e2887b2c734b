//! The last operation that was launched before a collective, on its stream or on a stream that its stream
//! waits for. This is what the GPU runs while it does not reach the collective.
//!
//! Kept for the collectives whose start is observed. The ticket determines the slot. A collective that still
//! waits keeps its slot, so the record keeps the oldest waiting ones.

use super::{AtomicU64, Record, Relaxed, Release, fence};
use crate::{datatype::DataType, gemm::Routine, unit::Moment};

/// Number of collectives whose preceding operation is kept.
pub const PRECEDED: usize = 128;

/// Bytes of a kernel's name that are kept.
pub const KERNEL_NAME: usize = 64;

const WORDS: usize = 16;
const NAME_WORDS: usize = KERNEL_NAME / 8;
const NAME_AT: usize = WORDS - NAME_WORDS;

const GEMM: u64 = 1;
const KERNEL: u64 = 2;
const GRAPH: u64 = 3;
const COPY: u64 = 4;

/// An operation on a stream that is no call of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Gemm {
        m: u32,
        n: u32,
        k: u32,
        batch: u32,
        datatype: DataType,
        routine: Routine,
    },
    /// A kernel, by its address and its name; the name is empty if it is unknown.
    Kernel {
        function: u64,
        name: [u8; KERNEL_NAME],
    },
    /// The launch of a CUDA graph.
    Graph,
    /// A copy or fill.
    Copy {
        bytes: u64,
    },
}

/// Work on a stream, and when it was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preceding {
    pub work: Work,
    /// The stream it was launched on: the collective's own, or one that the collective's own waits for.
    pub stream: u64,
    /// 0 if it is unknown.
    pub at: Moment,
}

/// One slot: ticket plus one, kind with type and routine, two words of the kind, moment, stream, and the
/// name.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Line([AtomicU64; WORDS]);

impl Work {
    /// Packs it into three words: the first for kind and type, two for values of that kind. A kernel's name
    /// is not among them.
    pub fn pack(self) -> [u64; 3] {
        match self {
            Self::Gemm { m, n, k, batch, datatype, routine } => [
                GEMM | u64::from(datatype.to_byte()) << 8 | u64::from(routine.to_byte()) << 16,
                u64::from(m) << 32 | u64::from(n),
                u64::from(k) << 32 | u64::from(batch),
            ],
            Self::Kernel { function, .. } => [KERNEL, function, 0],
            Self::Graph => [GRAPH, 0, 0],
            Self::Copy { bytes } => [COPY, bytes, 0],
        }
    }

    /// Reads the three words back; `None` if they describe no operation.
    pub fn unpack([kind, one, other]: [u64; 3]) -> Option<Self> {
        let (high, low) = (|word: u64| (word >> 32) as u32, |word: u64| word as u32);
        match kind & 0xff {
            GEMM => Some(Self::Gemm {
                m: high(one),
                n: low(one),
                k: high(other),
                batch: low(other),
                datatype: DataType::from_byte((kind >> 8) as u8),
                routine: Routine::from_byte((kind >> 16) as u8),
            }),
            KERNEL => Some(Self::Kernel { function: one, name: [0; KERNEL_NAME] }),
            GRAPH => Some(Self::Graph),
            COPY => Some(Self::Copy { bytes: one }),
            _ => None,
        }
    }
}

/// `cuBLAS GEMM 4096x4096x4096 bf16`, `kernel spin_kernel`
impl std::fmt::Display for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gemm { m, n, k, batch, datatype, routine } => {
                let name = if *routine == Routine::Gemm { "GEMM" } else { routine.name() };
                write!(f, "{name} {m}x{n}x{k}")?;
                if *batch != 1 {
                    write!(f, " b{batch}")?;
                }
                write!(f, " {datatype}")
            }
            Self::Kernel { function, name } => {
                let end = name.iter().position(|&byte| byte == 0).unwrap_or(KERNEL_NAME);
                match std::str::from_utf8(&name[..end]) {
                    Ok(name) if !name.is_empty() => write!(f, "kernel {name}"),
                    _ => write!(f, "kernel at {function:#x}"),
                }
            }
            Self::Graph => f.write_str("CUDA graph"),
            Self::Copy { bytes } => write!(f, "copy of {bytes} B"),
        }
    }
}

impl Record {
    /// Notes what was launched before the call with this ticket. Does nothing if an older call that still
    /// waits has the slot.
    pub fn preceded_by(&self, ticket: u64, preceding: &Preceding) {
        let words = &self.preceding[ticket as usize % PRECEDED].0;
        if words[0].load(Relaxed).checked_sub(1).is_some_and(|older| self.waits(older)) {
            return;
        }
        words[0].store(0, Relaxed);
        // The order is the same as in `enter`.
        fence(Release);
        let [kind, one, other] = preceding.work.pack();
        let plain = [kind, one, other, preceding.at.0, preceding.stream];
        for (word, value) in words[1..].iter().zip(plain) {
            word.store(value, Relaxed);
        }
        if let Work::Kernel { name, .. } = &preceding.work {
            for (word, bytes) in words[NAME_AT..].iter().zip(name.as_chunks().0) {
                word.store(u64::from_le_bytes(*bytes), Relaxed);
            }
        }
        words[0].store(ticket + 1, Release);
    }

    /// What was launched before the call with this ticket; `None` if it is unknown.
    pub fn preceding(&self, ticket: u64) -> Option<Preceding> {
        let words = &self.preceding[ticket as usize % PRECEDED].0;
        if words[0].load(super::Acquire) != ticket + 1 {
            return None;
        }
        let read: [u64; WORDS] = std::array::from_fn(|place| words[place].load(Relaxed));
        fence(super::Acquire);
        if words[0].load(Relaxed) != ticket + 1 {
            return None;
        }
        let mut work = Work::unpack([read[1], read[2], read[3]])?;
        if let Work::Kernel { name, .. } = &mut work {
            for (bytes, word) in name.as_chunks_mut().0.iter_mut().zip(&read[NAME_AT..]) {
                *bytes = word.to_le_bytes();
            }
        }
        Some(Preceding { work, at: Moment(read[4]), stream: read[5] })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{call, record},
        *,
    };

    #[test]
    fn launches_before_a_call_are_read_as_noted() {
        let record = record();
        let datatype = DataType::Bfloat16;
        let gemm = |routine| Work::Gemm { m: 4096, n: 2_000_000, k: 8, batch: 3, datatype, routine };
        let mut name = [0; KERNEL_NAME];
        name[..11].copy_from_slice(b"spin_kernel");
        let works = [
            gemm(Routine::Gemm),
            gemm(Routine::Trsm),
            Work::Kernel { function: 0x7fff_1234, name },
            Work::Graph,
            Work::Copy { bytes: 1 << 40 },
        ];
        for work in works {
            let ticket = record.enter(&call(1));
            assert_eq!(record.preceding(ticket), None);
            let noted = Preceding { work, stream: 7, at: Moment(99) };
            record.preceded_by(ticket, &noted);
            assert_eq!(record.preceding(ticket), Some(noted));
        }
        let texts = works.map(|work| work.to_string());
        assert_eq!(
            texts,
            [
                "GEMM 4096x2000000x8 b3 bf16",
                "trsm 4096x2000000x8 b3 bf16",
                "kernel spin_kernel",
                "CUDA graph",
                "copy of 1099511627776 B"
            ]
        );
    }

    /// A host that launches far ahead of its GPU does not overwrite the operation at which its GPU is stuck.
    #[test]
    fn the_oldest_waiting_call_keeps_its_preceding_launches() {
        let record = record();
        let noted = |bytes| Preceding { work: Work::Copy { bytes }, stream: 7, at: Moment(99) };
        let first = record.enter(&call(1));
        record.queued(first);
        record.preceded_by(first, &noted(0));
        for number in 1..=2 * PRECEDED as u64 {
            let ticket = record.enter(&call(number));
            record.preceded_by(ticket, &noted(number));
        }
        assert_eq!(record.preceding(first), Some(noted(0)));
        record.begun(first);
        let next = (0..PRECEDED)
            .map(|_| record.enter(&call(1)))
            .find(|next| (next - first).is_multiple_of(PRECEDED as u64));
        let next = next.expect("a ticket of the same slot");
        record.preceded_by(next, &noted(5));
        assert_eq!((record.preceding(first), record.preceding(next)), (None, Some(noted(5))));
    }
}
