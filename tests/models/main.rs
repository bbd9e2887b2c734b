//! Lock-free handovers between threads and processes, in every order that the memory model allows (loom).
//!
//! The models include the sources of the hook and of the ledger unchanged, with loom's atomics and cells in
//! place of the real ones. They run once on the sources as written, and once for each ordering or check that
//! could be missing. Such a mutant must fail, because a model that it passes proves nothing.
#![allow(dead_code, unused_imports, unreachable_pub, reason = "each model uses only a part of the sources")]
#![allow(missing_debug_implementations, reason = "loom's types have none")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::duplicate_mod, reason = "each variant includes the sources again")]
#![allow(clippy::should_panic_without_expect, reason = "a mutant may fail in loom or in an assertion")]

use xpu_wire::{collective, id, ledger, unit};

/// The unchanged parts, used for what a mutant does not replace.
mod real {
    pub(crate) use loom::{
        cell::UnsafeCell,
        sync::atomic::{
            AtomicU32, AtomicU64,
            Ordering::{self, Acquire, Relaxed, Release},
            fence,
        },
    };
}

/// The sources and their promises, with some parts replaced.
macro_rules! variant {
    ($(#[$doc:meta])* $name:ident { $($replaced:tt)* }) => {
        $(#[$doc])*
        #[path = "../.."]
        mod $name {
            mod sync {
                pub(crate) use crate::real::*;
                $($replaced)*
            }
            #[path = "shared/wire/src/ledger/communicator.rs"]
            mod communicator;
            #[path = "hook/src/gpu/timer/free.rs"]
            mod free;
            #[path = "hook/src/observe/communicator/progress.rs"]
            mod progress;
            #[path = "tests/models/promises.rs"]
            pub(crate) mod promises;
            #[path = "hook/src/observe/ring.rs"]
            mod ring;
            #[path = "hook/src/observe/lane/owner.rs"]
            mod owner;
            #[path = "shared/wire/src/ledger/thread.rs"]
            mod thread;
        }
    };
}

/// An atomic whose exchanges and additions are a load and a store.
macro_rules! torn {
    ($name:ident: $word:ty) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(crate::real::$name);

        impl $name {
            pub(crate) fn new(value: $word) -> Self {
                Self(crate::real::$name::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $word {
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: $word, order: Ordering) {
                self.0.store(value, order);
            }

            pub(crate) fn compare_exchange(
                &self,
                from: $word,
                to: $word,
                order: Ordering,
                failed: Ordering,
            ) -> Result<$word, $word> {
                self.fetch_update(order, failed, |before| (before == from).then_some(to))
            }

            pub(crate) fn fetch_update(
                &self,
                _: Ordering,
                _: Ordering,
                next: impl Fn($word) -> Option<$word>,
            ) -> Result<$word, $word> {
                let before = self.0.load(Acquire);
                self.0.store(next(before).ok_or(before)?, Release);
                Ok(before)
            }

            pub(crate) fn swap(&self, value: $word, order: Ordering) -> $word {
                self.0.swap(value, order)
            }

            pub(crate) fn fetch_add(&self, more: $word, order: Ordering) -> $word {
                let before = self.0.load(Acquire);
                self.0.store(before + more, order);
                before
            }

            pub(crate) fn fetch_and(&self, mask: $word, order: Ordering) -> $word {
                self.0.fetch_and(mask, order)
            }

            pub(crate) fn fetch_or(&self, mask: $word, order: Ordering) -> $word {
                self.0.fetch_or(mask, order)
            }
        }
    };
}

variant! { as_written {} }

variant! {
    /// A reader that sees a store need not see the writes before it.
    without_release {
        #[allow(non_upper_case_globals, reason = "in the place of another")]
        pub(crate) const Release: Ordering = Relaxed;
        pub(crate) fn fence(_: Ordering) {}
    }
}

variant! {
    /// A reader that has seen a store need not see the writes before it.
    without_acquire {
        #[allow(non_upper_case_globals, reason = "in the place of another")]
        pub(crate) const Acquire: Ordering = Relaxed;
        pub(crate) fn fence(_: Ordering) {}
    }
}

variant! {
    without_fence {
        pub(crate) fn fence(_: Ordering) {}
    }
}

variant! {
    /// Two threads may both be the first.
    without_exchange {
        torn! { AtomicU32: u32 }
        torn! { AtomicU64: u64 }
    }
}

/// A test that the promise holds as written, and one for each mutant that must break it.
macro_rules! promises {
    ($($promise:ident: $($mutant:ident),*;)*) => {$(
        mod $promise {
            #[test]
            fn holds() {
                crate::as_written::promises::$promise();
            }
            $(
                #[test]
                #[should_panic]
                fn $mutant() {
                    crate::$mutant::promises::$promise();
                }
            )*
        }
    )*};
}

promises! {
    records_arrive_whole_and_in_order: without_release, without_acquire;
    a_pair_is_one_threads_at_a_time: without_release, without_acquire;
    a_lane_is_one_threads_at_a_time: without_release, without_acquire, without_exchange;
    a_done_call_was_enqueued_and_entered: without_release, without_acquire;
    a_stream_proves_what_ran_there: without_release, without_acquire;
    no_launch_is_lost: without_exchange;
    a_line_shows_one_communicator: without_release, without_fence;
    a_free_line_goes_to_one: without_exchange;
    nobody_counts_for_the_next: without_exchange;
    a_call_is_shown_with_its_own_beginning: without_release, without_acquire;
}
