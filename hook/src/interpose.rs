//! Calls that the hook intercepts: the functions of each library, the search for the real ones, and
//! `interpose!`, which defines all of them.
//!
//! Observing has two halves, before and after the real call. So a panic of the observer never crosses the
//! real call, and the program sees the `errno` that the real call sets. Exceptions, cancellation and
//! `longjmp` may cross the frame of the real call: it has no destructor and needs no personality routine.

pub mod addresses;
pub mod cublas;
pub mod cublaslt;
pub mod cudart;
pub mod driver;
pub(crate) mod guard;
pub mod nccl;
pub mod plugin;
pub(crate) mod stub;
pub mod symbol;

/// The states of the switch in which calls pass through: all states that are off, or only those in which
/// nothing may be kept.
macro_rules! passed_by {
    () => {
        $crate::process::switch::ANY
    };
    (off) => {
        $crate::process::switch::FOR_GOOD
    };
}
pub(crate) use passed_by;

/// The ticket, or a reference to it: copying a large one that was just written takes many cycles.
macro_rules! taken {
    ($ticket:ident) => {
        $ticket.assume_init()
    };
    ($ticket:ident, place) => {
        $ticket.assume_init_ref()
    };
}
pub(crate) use taken;

/// ```text
/// interpose! {
///     fn NAME(arguments) -> c_int in LIBRARY, or CODE_IF_MISSING[, even off];
///     before |lane| code before the call, returning a ticket;
///     after [in place ]|lane, ticket, result| code after it.
/// }
/// ```
macro_rules! interpose {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> c_int
            in $library:expr, or $missing:expr $(, even $off:ident)?;
        before |$lane:ident| $before:expr;
        after $(in $place:ident)? |$lane_after:pat_param, $ticket:pat_param, $result:pat_param| $after:expr;
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the library documents for the function of this name.
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            $crate::interpose::stub::stub!($name::observe, $name::SYMBOL, $crate::interpose::passed_by!($($off)?))
        }

        mod $name {
            #[allow(unused_imports, reason = "what the module above has is there for its functions")]
            use super::*;

            #[unsafe(link_section = "xpu_top_symbols")]
            pub(super) static SYMBOL: $crate::interpose::symbol::Symbol =
                $crate::interpose::symbol::Symbol::new($crate::interpose::symbol::name!($name), &$library, $missing)
                    .handed_out_as(by_address);

            /// The address that lookups of this function get.
            #[unsafe(naked)]
            unsafe extern "C-unwind" fn by_address() {
                $crate::interpose::stub::stub_by_address!(observe, SYMBOL, $crate::interpose::passed_by!($($off)?))
            }

            /// No destructor is pending while the real function runs, because it may unwind or be cancelled.
            pub(super) unsafe extern "C-unwind" fn observe($($argument: $type),*) -> c_int {
                type Real = unsafe extern "C-unwind" fn($($type),*) -> c_int;
                let target = SYMBOL.find($crate::interpose::stub::caller());
                if target.at.is_null() {
                    return $missing;
                }
                // SAFETY: the symbol of this name has this signature in every version of the library's public header.
                let real = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Real>(target.at) };
                let mark = $crate::interpose::guard::Mark::new();
                let Some(entered) = $crate::interpose::guard::enter!(target.kind, &mark $(, $off)?) else {
                    SYMBOL.passes_by(target);
                    // SAFETY: the caller keeps the library's own preconditions.
                    return unsafe { real($($argument),*) };
                };
                let mut ticket = std::mem::MaybeUninit::uninit();
                let has_begun = entered.observe(&mut ticket, |$lane| $before);
                // SAFETY: the caller keeps the library's own preconditions.
                let result = unsafe { real($($argument),*) };
                entered.leave(|$lane_after| {
                    if result != 0 {
                        $crate::exit_note::failed(SYMBOL.name(), result);
                    }
                    if has_begun {
                        // SAFETY: `observe` has written it.
                        let $ticket = unsafe { $crate::interpose::taken!(ticket $(, $place)?) };
                        let $result = result;
                        $after;
                    }
                });
                result
            }
        }
    )*};
}
pub(crate) use interpose;

/// Like `interpose!`, for a function with a twin: libraries compiled for per-thread default streams use
/// another name.
///
/// ```text
/// fn NAME, NAME_OF_THE_TWIN(arguments) -> ...
/// ```
macro_rules! interpose_twins {
    ($(
        $(#[$doc:meta])*
        fn $name:ident, $twin:ident($($argument:ident: $type:ty),* $(,)?) -> c_int
            in $library:expr, or $missing:expr $(, even $off:ident)?;
        before |$lane:ident| $before:expr;
        after |$lane_after:pat_param, $ticket:pat_param, $result:pat_param| $after:expr;
    )*) => {
        $crate::interpose::interpose! {$(
            $(#[$doc])*
            fn $name($($argument: $type),*) -> c_int in $library, or $missing $(, even $off)?;
            before |$lane| $before;
            after |$lane_after, $ticket, $result| $after;

            $(#[$doc])*
            fn $twin($($argument: $type),*) -> c_int in $library, or $missing $(, even $off)?;
            before |$lane| $before;
            after |$lane_after, $ticket, $result| $after;
        )*}
    };
}
pub(crate) use interpose_twins;

#[cfg(test)]
#[allow(unreachable_pub, reason = "what is interposed is public everywhere else")]
mod tests {
    use std::ffi::c_int;

    use crate::{interpose::symbol::Library, process::switch};

    static LIBC: Library = Library::new("the C library", c"getpid");
    static NONE: Library = Library::new("none", c"none");

    interpose! {
        fn getpagesize() -> c_int in LIBC, or -1;
        before |_lane| assert!(HALF.get() != Half::Before, "on purpose");
        after |_, (), _| assert!(HALF.get() != Half::After, "on purpose");

        fn getdtablesize() -> c_int in LIBC, or -1;
        before |_lane| set_errno(libc::EMFILE);
        after |_, (), _| set_errno(libc::EAGAIN);

        fn xpu_top_no_library_has_this() -> c_int in NONE, or 77;
        before |_lane| ();
        after |_, (), _| {};
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Half {
        Before,
        After,
    }

    thread_local! {
        static HALF: std::cell::Cell<Half> = const { std::cell::Cell::new(Half::Before) };
    }

    fn set_errno(to: c_int) {
        // SAFETY: __errno_location gives a valid pointer for the life of the thread.
        unsafe { *libc::__errno_location() = to };
    }

    #[test]
    fn errno_is_the_programs() {
        set_errno(libc::EDOM);
        // SAFETY: as libc documents; it has no precondition.
        let answer = unsafe { getdtablesize() };
        // SAFETY: as above.
        assert_eq!((answer > 0, unsafe { *libc::__errno_location() }), (true, libc::EDOM));
    }

    #[test]
    fn a_panic_ends_observing_and_not_the_call() {
        // SAFETY: sysconf has no precondition.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as c_int;
        for half in [Half::Before, Half::After] {
            HALF.set(half);
            switch::clear_fault();
            let panics = switch::panics();
            // SAFETY: as libc documents; it has no precondition.
            let answers = [0; 3].map(|_| unsafe { getpagesize() });
            assert_eq!(answers, [page; 3]);
            assert_eq!(switch::panics(), panics + 1, "the calls after the first are not observed");
            assert!(switch::is_broken());
            let mark = crate::interpose::guard::Mark::new();
            assert!(
                crate::interpose::guard::Entered::enter_even_off(
                    crate::interpose::symbol::Kind::Watched,
                    &mark
                )
                .is_none()
            );
        }
        switch::clear_fault();
    }

    #[test]
    fn a_missing_function_returns_the_librarys_error_code() {
        // SAFETY: no function has this name, so none is called.
        assert_eq!(unsafe { xpu_top_no_library_has_this() }, 77);
    }
}
