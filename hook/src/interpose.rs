//! `interpose!`: the one shape of every function that stands in front of another.
//!
//! Observing is split in two so that the real call is outside of both halves: a panic of the observer never crosses it,
//! and what the real call does with `errno` is what the program sees.

/// ```text
/// interpose! {
///     fn NAME(arguments) -> c_int in LIBRARIES, or CODE_IF_MISSING[, even off];
///     before |lane| what is noted before the call, giving a ticket;
///     after |lane, ticket, result| what is noted after it.
/// }
/// ```
macro_rules! interpose {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> c_int
            in $libraries:expr, or $missing:expr $(, even $off:ident)?;
        before |$lane:ident| $before:expr;
        after |$lane_after:pat_param, $ticket:pat_param, $result:pat_param| $after:expr;
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the library documents for the function of this name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            type Real = unsafe extern "C" fn($($type),*) -> c_int;
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => panic!("a function's name has no NUL"),
            };
            static REAL: $crate::symbol::Symbol = $crate::symbol::Symbol::new(NAME, $libraries);
            let at = REAL.find($name as *const std::ffi::c_void);
            if at.is_null() {
                return $missing;
            }
            // SAFETY: the symbol of this name has this signature in every version of the library's public header.
            let real = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Real>(at) };
            let Some(entered) = $crate::guard::enter!($($off)?) else {
                // SAFETY: the caller keeps the library's own preconditions.
                return unsafe { real($($argument),*) };
            };
            let ticket = entered.observe(|$lane| $before);
            // SAFETY: the caller keeps the library's own preconditions.
            let result = unsafe { real($($argument),*) };
            if result != 0 {
                $crate::last_words::failed(NAME, result);
            }
            if let Some($ticket) = ticket {
                let $result = result;
                entered.observe(|$lane_after| $after);
            }
            result
        }
    )*};
}
pub(crate) use interpose;

/// The same for a function with a twin: libraries compiled for per-thread default streams call it by another name.
///
/// ```text
/// fn NAME, NAME_OF_THE_TWIN(arguments) -> ...
/// ```
macro_rules! interpose_twins {
    ($(
        $(#[$doc:meta])*
        fn $name:ident, $twin:ident($($argument:ident: $type:ty),* $(,)?) -> c_int
            in $libraries:expr, or $missing:expr $(, even $off:ident)?;
        before |$lane:ident| $before:expr;
        after |$lane_after:pat_param, $ticket:pat_param, $result:pat_param| $after:expr;
    )*) => {
        $crate::interpose::interpose! {$(
            $(#[$doc])*
            fn $name($($argument: $type),*) -> c_int in $libraries, or $missing $(, even $off)?;
            before |$lane| $before;
            after |$lane_after, $ticket, $result| $after;

            $(#[$doc])*
            fn $twin($($argument: $type),*) -> c_int in $libraries, or $missing $(, even $off)?;
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

    use crate::switch;

    interpose! {
        fn getpagesize() -> c_int in &[], or -1;
        before |_lane| assert!(HALF.get() != Half::Before, "on purpose");
        after |_, (), _| assert!(HALF.get() != Half::After, "on purpose");

        fn getdtablesize() -> c_int in &[], or -1;
        before |_lane| set_errno(libc::EMFILE);
        after |_, (), _| set_errno(libc::EAGAIN);

        fn xpu_top_no_library_has_this() -> c_int in &[c"libxpu_top_none.so"], or 77;
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
    fn a_panic_ends_the_observing_and_not_the_call() {
        // SAFETY: sysconf has no precondition.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as c_int;
        for half in [Half::Before, Half::After] {
            HALF.set(half);
            switch::mend();
            let panics = switch::panics();
            // SAFETY: as libc documents; it has no precondition.
            let answers = [0; 3].map(|_| unsafe { getpagesize() });
            assert_eq!(answers, [page; 3]);
            assert_eq!(switch::panics(), panics + 1, "the calls after the first are not observed");
            assert!(switch::is_broken());
            assert!(crate::guard::Entered::enter_even_off().is_none());
        }
        switch::mend();
    }

    #[test]
    fn a_function_no_library_has_answers_with_the_librarys_own_code() {
        // SAFETY: it is never called: there is none.
        assert_eq!(unsafe { xpu_top_no_library_has_this() }, 77);
    }
}
