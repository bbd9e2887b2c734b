//! The call site of an NCCL call, or of an allocation: in Python, and in native code ([`native`]).
//!
//! PyTorch releases the interpreter's lock around its NCCL calls, and nothing here waits for that lock. A
//! thread reads its own frames, which do not change while it is outside of Python. A call finds the number of
//! its site by a hash of its innermost frames. When a site first occurs, its text is read through the kernel.

mod key;
mod layout;
pub(crate) mod native;
mod text;

use std::{
    ffi::{CStr, c_int},
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicU8, AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use key::Key;
use layout::Layout;
use xpu_wire::ledger::{Allocating, LARGE, Record, SiteText};

use crate::{
    interpose::symbol,
    observe::lane::Lane,
    process::{peek, switch},
    python::functions::api::Python,
};

/// Number of innermost frames that distinguish sites: two or three frames of PyTorch are between the program
/// and NCCL.
const FRAMES: usize = 5;

/// The reader of the process's Python; never freed, because another thread may be using it.
static READER: AtomicPtr<Reader> = AtomicPtr::new(ptr::null_mut());
/// The number of unloaded libraries when the reader was made.
static KNOWN: AtomicU32 = AtomicU32::new(u32::MAX);

/// Whether frames were found at the expected places.
static PROOF: AtomicU8 = AtomicU8::new(NOT_TRIED);
const NOT_TRIED: u8 = 0;
const HOLDS: u8 = 1;
const FAILS: u8 = 2;

/// `PyGILState_GetThisThreadState`: the calling thread's state, without the lock.
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

/// Makes the reader as soon as the process has a Python. Called at every turn of the hook's thread.
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

/// The number of the calling thread's site; 0 outside of Python, or if the site is unknown.
#[inline]
pub(crate) fn here(record: &Record) -> u16 {
    let Some(reader) = reader() else { return 0 };
    let key = reader.key();
    record.sites.known(key, |text| text.write(reader.describe(&mut text::Buffer::new())))
}

/// The number of the site at which the calling thread has allocated this memory, by a call that returns to
/// `address`. 0 if the memory is small, the site is unknown, or observing is off.
pub(crate) fn of_memory(lane: &Lane, bytes: u64, address: usize) -> u8 {
    if bytes < LARGE || !switch::is_on() {
        return 0;
    }
    let ledger = lane.observer().ledger();
    let reader = reader();
    let frames = reader.map_or(0, Reader::key);
    let at = Allocating { frames, returns_to: address, step: ledger.completed() };
    ledger.memory.allocated(bytes, at, |python, native| {
        if let Some(reader) = reader {
            reader.write_to(python);
        }
        native::write_to(native, address);
    })
}

#[inline]
fn reader() -> Option<&'static Reader> {
    if KNOWN.load(Acquire) != symbol::generation() {
        return None;
    }
    // SAFETY: it is never freed.
    unsafe { READER.load(Acquire).as_ref() }
}

/// A Python frame: its code, and the position in the code. From 3.11 on, the position is an address, and the
/// code may be unknown.
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

    /// The hash of the calling thread's innermost frames; 0 outside of Python.
    #[inline]
    fn key(&self) -> u64 {
        match PROOF.load(Relaxed) {
            HOLDS => {}
            NOT_TRIED if self.prove() => {}
            _ => return 0,
        }
        // SAFETY: the places of the frames were verified. The frames do not change, because they are those of
        // the calling thread.
        let word = |at| unsafe { ptr::with_exposed_provenance::<usize>(at).read() };
        let mut key = Key::default();
        self.walk(word, |frame| key.add(frame.instruction ^ frame.code));
        key.value()
    }

    /// Whether frames are at the expected places. They are read through the kernel, so a wrong address does
    /// no harm.
    #[cold]
    fn prove(&self) -> bool {
        let frames = self.frames();
        let Some(first) = frames.first().copied().flatten() else { return false };
        let holds = self.is_code(self.code_of(&first));
        PROOF.store(if holds { HOLDS } else { FAILS }, Relaxed);
        holds
    }

    /// The same frames, read through the kernel.
    #[cold]
    fn frames(&self) -> [Option<Frame>; FRAMES] {
        let mut frames = [None; FRAMES];
        let mut places = frames.iter_mut();
        self.walk(
            |at| peek::word(at).unwrap_or(0),
            |frame| {
                if let Some(place) = places.next() {
                    *place = Some(frame);
                }
            },
        );
        frames
    }

    #[allow(clippy::inline_always, reason = "it is on the path of every NCCL call")]
    #[inline(always)]
    fn walk(&self, word: impl Fn(usize) -> usize, each: impl FnMut(Frame)) {
        let layout = self.layout;
        // While Python ends, it frees the states of threads that still run.
        // SAFETY: it only reads a word of Python's.
        if unsafe { (self.is_initialized)() } == 0 {
            return;
        }
        // SAFETY: it only reads a word of the thread's own.
        let state = unsafe { (self.thread_state)() };
        if !is_place(state) {
            return;
        }
        let mut first = word(state + layout.first);
        if let Some(second) = layout.second {
            if !is_place(first) {
                return;
            }
            first = word(first + second);
        }
        // Two loops, because all frames are alike.
        if layout.index.is_none() {
            self.walk_from::<false>(first, word, each);
        } else {
            self.walk_from::<true>(first, word, each);
        }
    }

    #[allow(clippy::inline_always, reason = "it is on the path of every NCCL call")]
    #[inline(always)]
    fn walk_from<const COUNTED: bool>(
        &self,
        mut at: usize,
        word: impl Fn(usize) -> usize,
        mut each: impl FnMut(Frame),
    ) {
        let layout = self.layout;
        for _ in 0..FRAMES {
            if !is_place(at) {
                return;
            }
            let instruction = word(at + layout.instruction);
            each(if COUNTED {
                Frame { at, code: word(at + layout.code), instruction: instruction & u32::MAX as usize }
            } else {
                // The instruction's address alone identifies the code.
                Frame { at, code: 0, instruction }
            });
            at = word(at + layout.previous);
        }
    }

    fn code_of(&self, frame: &Frame) -> usize {
        peek::word(frame.at + self.layout.code).unwrap_or(0) & !layout::TAGS
    }

    fn is_code(&self, at: usize) -> bool {
        is_place(at) && peek::word(at + layout::TYPE) == Some(self.code_type)
    }

    /// Writes the frames as text. Not inlined, because its buffer would then enlarge the caller's frame.
    #[cold]
    #[inline(never)]
    fn write_to(&self, text: &SiteText) {
        text.write(self.describe(&mut text::Buffer::new()));
    }

    /// Function, file and line of each frame.
    #[cold]
    fn describe<'a>(&self, into: &'a mut text::Buffer) -> &'a [u8] {
        for frame in self.frames().iter().flatten() {
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

/// The first address at which an object can be.
const FIRST_PLACE: usize = 4096;

/// Whether an object can be at this address.
#[inline]
fn is_place(at: usize) -> bool {
    const WORD: usize = size_of::<usize>();
    // One comparison for both conditions: an address within a word gets a high bit.
    at.wrapping_sub(FIRST_PLACE).rotate_right(WORD.ilog2()) < FIRST_PLACE.wrapping_neg() / WORD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_at_a_multiple_of_a_word() {
        for at in [4096, 4104, 0x7f3a_91c4_2d70, usize::MAX - 7] {
            assert!(is_place(at) && (1..8).all(|more| !is_place(at + more)), "{at:#x}");
        }
        assert!((0..4096).all(|at| !is_place(at)));
    }
}
