//! How the hook is linked.

/// Functions of the C library that `src/process/system.rs` replaces inside the hook.
const WRAPPED: &str = "bcmp clock_gettime clock_nanosleep close connect fcntl fstat fstat64 ftruncate geteuid getcwd gethostname getpid getrandom getsockopt gettid lseek64 lstat64 madvise \
    memfd_create mmap mmap64 munmap open64 pause poll prctl process_vm_readv read readlink recv sched_yield send socket stat64 statx syscall \
    write writev";
/// The routine that unwinds frames: see `src/process/unwinder.rs`.
const PERSONALITY: &str = "rust_eh_personality";

fn main() {
    // The hook stays mapped after a `dlclose`, because its thread and the interposed functions are still in
    // use.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libxpu_hook.so");
    for name in WRAPPED.split_whitespace().chain([PERSONALITY]) {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
}
