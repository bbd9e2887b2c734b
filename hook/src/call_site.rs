//! Where in the program's Python an NCCL call is made.
//!
//! PyTorch gives up the interpreter's lock around its calls of NCCL, and nothing here waits for it: a thread reads its own frames, which
//! stand still while it is outside of Python. What a call pays is a walk over a few of them, which gives a number for the site. The text of
//! a site is read when it is seen for the first time, through the kernel.

mod layout;
mod text;

use std::{
    ffi::{CStr, c_int},
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicU8, AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use xpu_shared::ledger::Record;

use crate::{functions::api::Python, peek, symbol};
use layout::Layout;

/// Frames that tell one site from another, innermost first: PyTorch puts two or three of its own between the program and NCCL.
const FRAMES: usize = 6;

/// Where a process's Python is read; never freed, another thread may be reading by it.
static READER: AtomicPtr<Reader> = AtomicPtr::new(ptr::null_mut());
/// After how many unloaded libraries it was made.
static KNOWN: AtomicU32 = AtomicU32::new(u32::MAX);

/// Whether frames were found where they are looked for.
static PROOF: AtomicU8 = AtomicU8::new(NOT_TRIED);
const NOT_TRIED: u8 = 0;
const HOLDS: u8 = 1;
const FAILS: u8 = 2;

/// `PyGILState_GetThisThreadState`: the thread's own, without the lock.
type ThreadState = unsafe extern "C" fn() -> usize;
/// `PyCode_Addr2Line`: reads a code object, and takes no reference.
type LineOf = unsafe extern "C" fn(usize, c_int) -> c_int;

#[derive(Debug)]
struct Reader {
    is_initialized: unsafe extern "C" fn() -> c_int,
    thread_state: ThreadState,
    line_of: LineOf,
    /// `PyCode_Type`
    code_type: usize,
    layout: &'static Layout,
}

/// At every look of the hook's own thread.
pub(crate) fn prepare() {
    let unloaded = symbol::generation();
    if KNOWN.load(Relaxed) == unloaded && !READER.load(Relaxed).is_null() {
        return;
    }
    let Some(_visit) = symbol::Visit::begin() else { return };
    let Some(python) = Python::find().filter(|python| python.is_supported().is_ok()) else { return };
    if let Some(reader) = Reader::look(python) {
        PROOF.store(NOT_TRIED, Relaxed);
        READER.store(Box::leak(Box::new(reader)), Release);
        KNOWN.store(unloaded, Release);
    }
}

/// The number of the site that the calling thread is at; 0 outside of Python, or where that is not known.
#[inline]
pub(crate) fn here(record: &Record) -> u16 {
    if KNOWN.load(Acquire) != symbol::generation() {
        return 0;
    }
    // SAFETY: it is never freed.
    let Some(reader) = (unsafe { READER.load(Acquire).as_ref() }) else { return 0 };
    let mut frames = [Frame::default(); FRAMES];
    let depth = reader.frames(&mut frames);
    let key = frames[..depth].iter().fold(0, |key, frame| mix(key, frame.instruction ^ frame.code));
    record.sites.known(key, |text| text.write(reader.tell(&frames[..depth], &mut text::Buffer::new())))
}

#[inline]
fn mix(key: u64, word: usize) -> u64 {
    let product = u128::from(key.rotate_left(23) ^ word as u64) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

/// A frame of Python: what it is in, and where there. From 3.11 on the second is an address, of which the first need not be known.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    at: usize,
    code: usize,
    instruction: usize,
}

impl Reader {
    fn look(python: &Python) -> Option<Self> {
        // SAFETY: a static text.
        let version = unsafe { CStr::from_ptr((python.Py_GetVersion)()) };
        let layout = Layout::of(&version.to_string_lossy())?;
        let find = |name: &CStr| {
            let at = symbol::find_anywhere(name);
            (!at.is_null()).then_some(at)
        };
        let thread_state = find(c"PyGILState_GetThisThreadState")?;
        let line_of = find(c"PyCode_Addr2Line")?;
        let code_type = find(c"PyCode_Type")?.addr();
        // SAFETY: the functions of these names have these signatures in every Python that has a layout here.
        let (thread_state, line_of) = unsafe {
            (
                std::mem::transmute::<*mut std::ffi::c_void, ThreadState>(thread_state),
                std::mem::transmute::<*mut std::ffi::c_void, LineOf>(line_of),
            )
        };
        Some(Self { is_initialized: python.Py_IsInitialized, thread_state, line_of, code_type, layout })
    }

    /// The innermost frames of the calling thread, and how many they are.
    #[inline]
    fn frames(&self, into: &mut [Frame; FRAMES]) -> usize {
        match PROOF.load(Relaxed) {
            HOLDS => {}
            NOT_TRIED if self.prove() => {}
            _ => return 0,
        }
        // SAFETY: the frames are where they were proven to be, and stand still: they are the calling thread's own.
        self.walk(into, |at| unsafe { ptr::with_exposed_provenance::<usize>(at).read() })
    }

    /// Whether frames are where they are looked for: the kernel reads them, so that nothing happens if they are not.
    #[cold]
    fn prove(&self) -> bool {
        let mut frames = [Frame::default(); FRAMES];
        let depth = self.walk(&mut frames, |at| peek::word(at).unwrap_or(0));
        if depth == 0 {
            return false;
        }
        let holds = self.is_code(self.code_of(&frames[0]));
        PROOF.store(if holds { HOLDS } else { FAILS }, Relaxed);
        holds
    }

    #[inline]
    fn walk(&self, into: &mut [Frame; FRAMES], word: impl Fn(usize) -> usize) -> usize {
        let layout = self.layout;
        // SAFETY: it only reads a word of Python's.
        if unsafe { (self.is_initialized)() } == 0 {
            return 0;
        }
        // SAFETY: it only reads a word of the thread's own.
        let state = unsafe { (self.thread_state)() };
        if !is_place(state) {
            return 0;
        }
        let mut at = state;
        for &offset in layout.first {
            at = word(at + offset);
            if !is_place(at) {
                return 0;
            }
        }
        let mut depth = 0;
        while depth < FRAMES && is_place(at) {
            into[depth] = match layout.index {
                // The address of an instruction says which code it is in.
                None => Frame { at, code: 0, instruction: word(at + layout.instruction) },
                Some(_) => Frame {
                    at,
                    code: word(at + layout.code),
                    instruction: word(at + layout.instruction) & u32::MAX as usize,
                },
            };
            depth += 1;
            at = word(at + layout.previous);
        }
        depth
    }

    fn code_of(&self, frame: &Frame) -> usize {
        peek::word(frame.at + self.layout.code).unwrap_or(0)
    }

    fn is_code(&self, at: usize) -> bool {
        is_place(at) && peek::word(at + layout::TYPE) == Some(self.code_type)
    }

    /// Function, file and line of each frame.
    #[cold]
    fn tell<'a>(&self, frames: &[Frame], into: &'a mut text::Buffer) -> &'a [u8] {
        for frame in frames {
            let code = self.code_of(frame);
            if !self.is_code(code) {
                continue;
            }
            let offset = match self.layout.index {
                Some(scale) => frame.instruction * scale,
                None => frame.instruction.saturating_sub(code + self.layout.instructions),
            };
            // SAFETY: a code object, which a frame of this thread holds.
            let line = unsafe { (self.line_of)(code, c_int::try_from(offset).unwrap_or(0)) };
            into.frame(self.layout, code, line);
        }
        into.bytes()
    }
}

/// Whether an object can be there.
#[inline]
fn is_place(at: usize) -> bool {
    at >= 4096 && at.is_multiple_of(size_of::<usize>())
}
