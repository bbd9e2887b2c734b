//! The token with which a call is observed. There is none while observing is off, and none within an observed
//! call.

use std::{
    any::Any,
    cell::Cell,
    ffi::c_int,
    mem::MaybeUninit,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{
    interpose::symbol::Kind,
    observe::lane::Lane,
    process::{peek, switch, thread_words::ThreadWords},
};

/// The value of a mark, before it is combined with its position.
const MARKED: usize = 0x7870_755f_746f_7001_u64 as usize;

/// Stands for a mark while the thread runs the hook's own code.
const OWN: usize = usize::MAX;

/// After this many library calls that count as parts of one call, the hook checks whether that call still
/// runs; after each check, twice as many are allowed. Hardly any call makes this many.
const PARTS_BEFORE_CHECK: u32 = 4;

/// The calls that this thread is inside of. Libraries call themselves through public symbols (`ncclBcast`
/// reaches `ncclBroadcast`), and only the outermost call counts. This applies only to calls by those
/// libraries: a call by the program always counts by itself.
///
/// If an exception or `longjmp` ends a call, the hook does not see its end. The call's [`Mark`] then shows
/// that it has ended.
pub(crate) struct Inside {
    /// The innermost call's mark; 0 outside of calls.
    last: Cell<usize>,
    /// The outermost call's mark.
    outermost: Cell<usize>,
    /// Library calls that counted as parts of the innermost call.
    parts: Cell<u32>,
}

impl Inside {
    #[inline]
    fn mine() -> &'static Self {
        &ThreadWords::mine().inside
    }

    /// The call that encloses a call with its mark at `here`; `None` if the new call is a part of the
    /// enclosing one. Only library calls can be parts. A program's call in a handler or a callback is
    /// enclosed, but not a part.
    #[inline(never)]
    fn around(&self, kind: Kind, here: usize) -> Option<usize> {
        // Two live frames cannot be at the same address.
        if self.last.get() == here {
            self.forget_last();
        }
        if kind != Kind::Inner || self.last.get() == 0 {
            return Some(self.last.get());
        }
        let parts = self.parts.get().wrapping_add(1);
        self.parts.set(parts);
        // Inner calls are further down on the stack. So a call further up is not a part, unless it is on
        // another stack.
        let is_doubtful = here > self.last.get() || parts >= PARTS_BEFORE_CHECK;
        if is_doubtful && parts.is_power_of_two() {
            let _errno = ErrnoKept::keep();
            while self.last.get() != 0 && Mark::is_gone(self.last.get()) {
                self.forget_last();
            }
        }
        (self.last.get() == 0).then_some(0)
    }

    /// Forgets the innermost call, which has ended. The call around it may still run.
    fn forget_last(&self) {
        let outermost = self.outermost.get();
        self.last.set(if self.last.get() == outermost { 0 } else { outermost });
    }
}

/// Words in a call's frame, unchanged as long as that frame exists. Afterwards, later calls overwrite them at
/// some time. So a changed mark proves that its call has ended, on any stack; an unchanged mark proves
/// nothing. There are several words, because a single one might remain in a part of a later frame that is
/// never written.
#[derive(Debug)]
pub(crate) struct Mark(Cell<MaybeUninit<Words>>);

/// Written in pairs, by half as many stores.
type Words = [Pair; 8];

#[cfg(target_arch = "x86_64")]
type Pair = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Pair = u128;

#[inline]
fn pair(word: usize) -> Pair {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE2.
    return unsafe { std::arch::x86_64::_mm_set1_epi64x(word as i64) };
    #[cfg(not(target_arch = "x86_64"))]
    return (word as u128) << 64 | word as u128;
}

impl Mark {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self(Cell::new(MaybeUninit::uninit()))
    }

    #[inline]
    fn place(&self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// Marks the frame, and returns the mark's address. The words must not move, because calls of this thread
    /// may read them at that address.
    #[inline]
    pub(crate) fn set(&self) -> usize {
        let at = self.place();
        self.0.set(MaybeUninit::new([pair(at ^ MARKED); 8]));
        at
    }

    /// Whether the frame with its mark at `at` is known to be gone. The kernel reads the words, because their
    /// memory may be unmapped.
    #[cold]
    pub(crate) fn is_gone(at: usize) -> bool {
        if at == OWN {
            return false;
        }
        let mut bytes = [0; size_of::<Words>()];
        if peek::peek(at, &mut bytes) == bytes.len() {
            return bytes.chunks_exact(size_of::<usize>()).any(|word| word != (at ^ MARKED).to_ne_bytes());
        }
        // The words are unreadable: they are unmapped, or the kernel refuses all reads. Reading a local
        // variable shows which.
        peek::word((&raw const at).expose_provenance()).is_some()
    }

    /// Overwrites one word, as another frame would.
    #[cfg(test)]
    pub(crate) fn overwrite(&self) {
        self.set();
        // SAFETY: it is one of the words.
        unsafe { self.0.as_ptr().cast::<usize>().add(11).write(0) };
    }
}

/// Proof that this thread may observe. It has no destructor, because the observed call may end without a
/// return.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    lane: &'static Lane,
    /// The mark of the enclosing call.
    around: usize,
}

impl Entered {
    /// Enters a call. `mark` is in the caller's frame, and lives until the call has ended.
    #[inline]
    pub(crate) fn enter(kind: Kind, mark: &Mark) -> Option<Self> {
        if switch::is_on() { Self::enter_even_off(kind, mark) } else { None }
    }

    /// Like `enter`, for calls that update numbers even while observing is off; see
    /// [`crate::interpose::nccl`].
    #[inline]
    pub(crate) fn enter_even_off(kind: Kind, mark: &Mark) -> Option<Self> {
        if switch::is_broken() || kind == Kind::Elsewhere {
            return None;
        }
        let inside = Inside::mine();
        let last = inside.last.get();
        let around = if last == 0 { 0 } else { inside.around(kind, mark.place())? };
        let at = mark.set();
        inside.last.set(at);
        inside.parts.set(0);
        if around == 0 {
            inside.outermost.set(at);
        }
        let lane = Lane::mine().or_else(first_call);
        if lane.is_none() {
            inside.last.set(around);
        }
        Some(Self { lane: lane?, around })
    }

    /// Runs the first half of an observation, and writes its result to `place`. Returns whether there is a
    /// result. It is not returned, because each copy of a value that was just written takes many cycles.
    #[inline]
    pub(crate) fn observe<T>(
        self,
        place: &mut MaybeUninit<T>,
        half: impl FnOnce(&'static Lane) -> T,
    ) -> bool {
        self.caught(|lane| _ = place.write(half(lane)))
    }

    /// Returns whether there was no panic. The program sees no effect except the time taken. Not inlined,
    /// because it catches panics, and the frame of the real call must not.
    #[inline(never)]
    fn caught(self, half: impl FnOnce(&'static Lane)) -> bool {
        let errno = ErrnoKept::keep();
        let outcome = catch_unwind(AssertUnwindSafe(|| half(self.lane)));
        drop(errno);
        outcome.map_err(forgotten).is_ok()
    }

    /// Runs the last half of the observation, and ends it.
    #[inline]
    pub(crate) fn leave(self, half: impl FnOnce(&'static Lane)) {
        self.caught(half);
        Inside::mine().last.set(self.around);
    }
}

/// Leaks a panic's payload, because dropping it might panic again.
fn forgotten(payload: Box<dyn Any + Send>) {
    std::mem::forget(payload);
    switch::panicked();
}

/// A lane for a thread without one. The first call also creates the observer, so panics are caught here.
#[cold]
fn first_call() -> Option<&'static Lane> {
    let errno = ErrnoKept::keep();
    let outcome = catch_unwind(Lane::borrow);
    drop(errno);
    outcome.unwrap_or_else(|payload| {
        forgotten(payload);
        None
    })
}

/// `enter!(kind, mark)` or `enter!(kind, mark, off)`. The first form is for calls that pass through untouched
/// while observing is off.
macro_rules! enter {
    ($kind:expr, $mark:expr) => {
        $crate::interpose::guard::Entered::enter($kind, $mark)
    };
    ($kind:expr, $mark:expr, off) => {
        $crate::interpose::guard::Entered::enter_even_off($kind, $mark)
    };
}
pub(crate) use enter;

/// Runs `body` as if inside an intercepted call, so that what it calls is not observed.
pub(crate) fn unobserved<T>(body: impl FnOnce() -> T) -> T {
    let before = Inside::mine().last.replace(OWN);
    let result = body();
    Inside::mine().last.set(before);
    result
}

/// Runs `half` for a callback from NCCL. The second argument of `half` says whether this thread is in an
/// intercepted call. A panic in `half` turns observing off, and never crosses NCCL.
pub(crate) fn called_back<T>(half: impl FnOnce(&'static Lane, bool) -> T) -> Option<T> {
    if switch::is_broken() {
        return None;
    }
    let errno = ErrnoKept::keep();
    let before = Inside::mine().last.replace(OWN);
    let lane = Lane::mine().or_else(first_call);
    let outcome = lane.map(|lane| catch_unwind(AssertUnwindSafe(|| half(lane, before != 0))));
    Inside::mine().last.set(before);
    drop(errno);
    outcome?.map_err(forgotten).ok()
}

/// Like `called_back`, for work without a lane.
pub(crate) fn quietly(work: impl FnOnce()) {
    let errno = ErrnoKept::keep();
    if let Err(payload) = catch_unwind(AssertUnwindSafe(work)) {
        forgotten(payload);
    }
    drop(errno);
}

/// Restores `errno`.
pub(crate) struct ErrnoKept {
    /// The thread's variable.
    place: *mut c_int,
    was: c_int,
}

impl ErrnoKept {
    #[inline]
    pub(crate) fn keep() -> Self {
        // SAFETY: __errno_location gives a valid pointer for the life of the thread.
        unsafe {
            let place = libc::__errno_location();
            Self { place, was: *place }
        }
    }
}

impl Drop for ErrnoKept {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as above; the value stays on its thread.
        unsafe { *self.place = self.was };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::lane::BORROW_PANICS;

    #[test]
    fn a_panic_at_the_first_call_ends_observing_and_not_the_call() {
        BORROW_PANICS.set(true);
        let panics = switch::panics();
        // SAFETY: as in `ErrnoKept`.
        unsafe { *libc::__errno_location() = 77 };
        let mark = Mark::new();
        assert!(Entered::enter_even_off(Kind::Watched, &mark).is_none());
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 77, "what failed meanwhile is not the program's");
        assert_eq!((switch::panics(), switch::is_broken()), (panics + 1, true));
        assert_eq!(Inside::mine().last.get(), 0, "the next call is not taken for one inside this");
        switch::clear_fault();
    }

    /// The result of `around` for a call of this kind with its mark at `here`.
    fn call(kind: Kind, here: usize) -> Option<usize> {
        let inside = Inside::mine();
        if inside.last.get() == 0 { Some(0) } else { inside.around(kind, here) }
    }

    fn be_inside(last: usize, outermost: usize) {
        let inside = Inside::mine();
        inside.last.set(last);
        inside.outermost.set(outermost);
        inside.parts.set(0);
    }

    #[test]
    fn calls_of_a_library_within_a_running_call_are_part_of_it() {
        let mark = Mark::new();
        let at = mark.set();
        be_inside(at, at);
        // A mark further down, and one further up on another stack.
        for here in [at - 4096, at + 4096] {
            assert!((0..1_000).all(|_| call(Kind::Inner, here).is_none()), "{here:#x}");
        }
        assert_eq!(call(Kind::Watched, at - 64), Some(at), "what a program calls is none");
        be_inside(OWN, OWN);
        assert!((0..1_000).all(|_| call(Kind::Inner, at).is_none()), "the hook's own thread");
        be_inside(0, 0);
    }

    #[test]
    fn a_call_left_by_a_jump_is_recognized_by_its_mark() {
        let mark = Mark::new();
        let at = mark.set();
        be_inside(at, at);
        assert_eq!(call(Kind::Inner, at), Some(0), "another frame is in its place");
        be_inside(at, at);
        mark.overwrite();
        assert_eq!(call(Kind::Inner, at + 64), Some(0), "at once from above it");
        be_inside(at, at);
        let tries = (1..100).find(|_| call(Kind::Inner, at - 64).is_some());
        assert_eq!(tries, Some(PARTS_BEFORE_CHECK), "soon from below it");
        // After a check that succeeds, the next check comes at twice as many parts.
        mark.set();
        be_inside(at, at);
        assert!((0..=PARTS_BEFORE_CHECK).all(|_| call(Kind::Inner, at - 64).is_none()));
        mark.overwrite();
        let tries = (PARTS_BEFORE_CHECK + 2..100).find(|_| call(Kind::Inner, at - 64).is_some());
        assert_eq!(tries, Some(2 * PARTS_BEFORE_CHECK), "a call of many parts is looked at ever more seldom");
        // An address on a stack that was unmapped.
        be_inside(0x1000, 0x1000);
        assert_eq!((1..100).find(|_| call(Kind::Inner, 0x800).is_some()), Some(PARTS_BEFORE_CHECK));
    }

    #[test]
    fn a_callbacks_call_left_by_a_jump_does_not_end_the_outer_one() {
        let (outer, inner) = (Mark::new(), Mark::new());
        let (outer_at, inner_at) = (outer.set(), inner.set());
        be_inside(inner_at, outer_at);
        inner.overwrite();
        assert!((0..1_000).all(|_| call(Kind::Inner, outer_at.min(inner_at) - 64).is_none()));
        assert_eq!(Inside::mine().last.get(), outer_at);
        outer.overwrite();
        assert!((0..2_000).any(|_| call(Kind::Inner, outer_at - 64).is_some()));
        be_inside(0, 0);
    }
}
