//! Builds `libcudart`'s sources without the exports of the CUDA runtime, and keeps the library mapped: its
//! threads may outlive a `dlclose`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(private)");
    println!("cargo::rustc-cfg=private");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsimgpu_timeline.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
