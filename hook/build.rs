//! The hook stays mapped whatever the program does: its thread and the functions it stands in front of outlive a dlclose.

/// See `src/last_resort.rs`.
const WRAPPED: [&str; 5] = ["abort", "_Znwm", "__cxa_thread_atexit_impl", "fprintf", "__fprintf_chk"];

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libxpu_hook.so");
    for function in WRAPPED {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={function}");
    }
}
