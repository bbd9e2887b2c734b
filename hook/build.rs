//! The hook stays mapped whatever the program does: its thread and the functions it stands in front of outlive a dlclose.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libxpu_hook.so");
}
