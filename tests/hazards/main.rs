//! One test per hazard: a program behaves the same with the hook preloaded as without, with every build of
//! the hook, whatever its collector does, and with the hook disabled.
//!
//! The programs are in this folder, and `README.md` describes each.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// One test for each hazard that only has to be harmless. Also lists these hazards for the table.
macro_rules! harmless {
    ($($(#[$attribute:meta])* $test:ident: $hazard:expr;)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $test() {
                $hazard.is_harmless();
            }
        )*

        pub(crate) const ALL: &[$crate::table::Named] = &[$((stringify!($test), || $hazard)),*];
    };
}

mod addresses;
mod artifact;
mod bench;
mod collector;
mod counts;
mod descriptors;
mod end;
mod exits;
mod hazard;
mod loading;
mod memcheck;
mod memory;
mod processes;
mod runtimes;
mod signals;
mod stacks;
mod stand_in;
mod table;
mod unwinding;
