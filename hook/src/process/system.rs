//! System calls by number, instead of the C library's functions for them.
//!
//! Only the names of ISO C are reserved for the C library: a program may define its own functions called
//! `send`, `connect`, `poll` or even `syscall`, and the loader would bind the hook to those. So would other
//! preloads, which replace clocks and sockets. The linker replaces such calls everywhere in the hook
//! (`--wrap`, see `build.rs`), also in Rust's standard library, with the functions here. They set `errno` as
//! the C library does.

use std::{
    arch::global_asm,
    ffi::{c_char, c_int, c_long, c_uint, c_void},
    mem::size_of,
    ptr,
};

use libc::{clockid_t, mode_t, off_t, pid_t, pollfd, sockaddr, socklen_t, ssize_t, timespec, uid_t};

use crate::interpose::symbol::Own;

/// The size of the kernel's set of signals.
const SET: usize = 8;

macro_rules! calls {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty = $body:expr;)*) => {$(
        #[cfg_attr(test, allow(dead_code, reason = "no preload is linked for tests"))]
        unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            // SAFETY: the caller keeps the preconditions of the function that has this name in the C library.
            (unsafe { $body }) as $answer
        }
        // The symbol is hidden, so that no other object binds to it.
        #[cfg(target_arch = "x86_64")]
        global_asm!(
            concat!(".hidden __wrap_", stringify!($name)),
            concat!(".globl __wrap_", stringify!($name)),
            concat!("__wrap_", stringify!($name), ": jmp {}"),
            sym $name
        );
        #[cfg(target_arch = "aarch64")]
        global_asm!(
            concat!(".hidden __wrap_", stringify!($name)),
            concat!(".globl __wrap_", stringify!($name)),
            concat!("__wrap_", stringify!($name), ": b {}"),
            sym $name
        );
    )*};
}

/// Makes the system call, and converts the kernel's answer.
macro_rules! call {
    ($number:ident $(, $argument:expr)*) => { libc::syscall(libc::$number $(, $argument)*) };
}

/// The C library reads most clocks without a system call.
static CLOCK_GETTIME: Own = Own::new(c"clock_gettime");
type ClockGettime = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;

calls! {
    fn bcmp(one: *const c_void, other: *const c_void, length: usize) -> c_int = libc::memcmp(one, other, length);
    fn clock_gettime(clock: clockid_t, into: *mut timespec) -> c_int = {
        let own = CLOCK_GETTIME.find(by_system_call as *const () as usize);
        std::mem::transmute::<usize, ClockGettime>(own)(clock, into)
    };
    fn clock_nanosleep(clock: clockid_t, how: c_int, time: *const timespec, left: *mut timespec) -> c_int = {
        // It returns the error instead of setting `errno`.
        let failed = call!(SYS_clock_nanosleep, clock, how, time, left) != 0;
        if failed { *libc::__errno_location() } else { 0 }
    };
    fn close(file: c_int) -> c_int = call!(SYS_close, file);
    fn connect(socket: c_int, to: *const sockaddr, length: socklen_t) -> c_int = call!(SYS_connect, socket, to, length);
    fn fcntl(file: c_int, what: c_int, with: c_long) -> c_int = call!(SYS_fcntl, file, what, with);
    fn fstat(file: c_int, into: *mut c_void) -> c_int = call!(SYS_fstat, file, into);
    fn fstat64(file: c_int, into: *mut c_void) -> c_int = call!(SYS_fstat, file, into);
    fn ftruncate(file: c_int, length: off_t) -> c_int = call!(SYS_ftruncate, file, length);
    fn geteuid() -> uid_t = call!(SYS_geteuid);
    fn getcwd(into: *mut c_char, length: usize) -> *mut c_char =
        if call!(SYS_getcwd, into, length) < 0 { ptr::null_mut() } else { into };
    fn gethostname(into: *mut c_char, length: usize) -> c_int = {
        let mut names: libc::utsname = std::mem::zeroed();
        let answer = call!(SYS_uname, &raw mut names) as c_int;
        if answer == 0 {
            ptr::copy_nonoverlapping(names.nodename.as_ptr(), into, length.min(names.nodename.len()));
        }
        answer
    };
    fn getpid() -> pid_t = call!(SYS_getpid);
    fn getrandom(into: *mut c_void, length: usize, how: c_uint) -> ssize_t = call!(SYS_getrandom, into, length, how);
    fn getsockopt(socket: c_int, level: c_int, option: c_int, into: *mut c_void, length: *mut socklen_t) -> c_int =
        call!(SYS_getsockopt, socket, level, option, into, length);
    fn gettid() -> pid_t = call!(SYS_gettid);
    fn lseek64(file: c_int, to: off_t, from: c_int) -> off_t = call!(SYS_lseek, file, to, from);
    fn lstat64(path: *const c_char, into: *mut c_void) -> c_int =
        call!(SYS_newfstatat, libc::AT_FDCWD, path, into, libc::AT_SYMLINK_NOFOLLOW);
    fn madvise(at: *mut c_void, length: usize, advice: c_int) -> c_int = call!(SYS_madvise, at, length, advice);
    fn memfd_create(name: *const c_char, how: c_uint) -> c_int = call!(SYS_memfd_create, name, how);
    fn mmap(at: *mut c_void, length: usize, protection: c_int, how: c_int, file: c_int, from: off_t) -> *mut c_void =
        call!(SYS_mmap, at, length, protection, how, file, from);
    fn mmap64(at: *mut c_void, length: usize, protection: c_int, how: c_int, file: c_int, from: off_t) -> *mut c_void =
        call!(SYS_mmap, at, length, protection, how, file, from);
    fn munmap(at: *mut c_void, length: usize) -> c_int = call!(SYS_munmap, at, length);
    fn open64(path: *const c_char, how: c_int, mode: mode_t) -> c_int =
        call!(SYS_openat, libc::AT_FDCWD, path, how, mode);
    fn pause() -> c_int = call!(SYS_ppoll, ptr::null_mut::<pollfd>(), 0, ptr::null::<c_void>(), ptr::null::<c_void>(), SET);
    fn poll(files: *mut pollfd, count: libc::nfds_t, timeout: c_int) -> c_int = {
        let time = libc::timespec {
            tv_sec: (timeout / 1000).into(),
            tv_nsec: c_long::from(timeout % 1000) * 1_000_000,
        };
        let time = if timeout < 0 { ptr::null() } else { &raw const time };
        call!(SYS_ppoll, files, count, time, ptr::null::<c_void>(), SET)
    };
    fn prctl(what: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int = call!(SYS_prctl, what, a, b, c, d);
    fn process_vm_readv(
        of: pid_t, here: *const libc::iovec, count: usize, there: *const libc::iovec, count_there: usize, how: usize
    ) -> ssize_t = call!(SYS_process_vm_readv, of, here, count, there, count_there, how);
    fn read(file: c_int, into: *mut c_void, length: usize) -> ssize_t = call!(SYS_read, file, into, length);
    fn readlink(path: *const c_char, into: *mut c_char, length: usize) -> ssize_t =
        call!(SYS_readlinkat, libc::AT_FDCWD, path, into, length);
    fn recv(socket: c_int, into: *mut c_void, length: usize, how: c_int) -> ssize_t =
        call!(SYS_recvfrom, socket, into, length, how, ptr::null::<sockaddr>(), ptr::null::<socklen_t>());
    fn sched_yield() -> c_int = call!(SYS_sched_yield);
    fn send(socket: c_int, from: *const c_void, length: usize, how: c_int) -> ssize_t =
        call!(SYS_sendto, socket, from, length, how, ptr::null::<sockaddr>(), 0);
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int = call!(SYS_socket, domain, kind, protocol);
    fn stat64(path: *const c_char, into: *mut c_void) -> c_int = call!(SYS_newfstatat, libc::AT_FDCWD, path, into, 0);
    fn statx(folder: c_int, path: *const c_char, how: c_int, mask: c_uint, into: *mut c_void) -> c_int =
        call!(SYS_statx, folder, path, how, mask, into);
    fn write(file: c_int, from: *const c_void, length: usize) -> ssize_t = call!(SYS_write, file, from, length);
    fn writev(file: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t = call!(SYS_writev, file, parts, count);
}

unsafe extern "C" fn by_system_call(clock: clockid_t, into: *mut timespec) -> c_int {
    // SAFETY: as `clock_gettime(2)`.
    unsafe { call!(SYS_clock_gettime, clock, into) as c_int }
}

// `syscall(2)`: up to six arguments after the number.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".hidden __wrap_syscall",
    ".globl __wrap_syscall",
    "__wrap_syscall:",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, qword ptr [rsp + 8]",
    "syscall",
    "cmp rax, -4095",
    "jae 2f",
    "ret",
    "2: mov rdi, rax",
    "jmp {failed}",
    failed = sym failed,
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".hidden __wrap_syscall",
    ".globl __wrap_syscall",
    "__wrap_syscall:",
    "mov x8, x0",
    "mov x0, x1",
    "mov x1, x2",
    "mov x2, x3",
    "mov x3, x4",
    "mov x4, x5",
    "mov x5, x6",
    "svc 0",
    "cmn x0, #4095",
    "b.cs 2f",
    "ret",
    "2: b {failed}",
    failed = sym failed,
);

/// Sets `errno` from the kernel's answer.
#[cfg_attr(test, allow(dead_code, reason = "no preload is linked for tests"))]
unsafe extern "C" fn failed(answer: c_long) -> c_long {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = -answer as c_int };
    -1
}

/// On these machines, the C library's `struct stat` is the kernel's.
const _: () = assert!(size_of::<libc::stat64>() == if cfg!(target_arch = "x86_64") { 144 } else { 128 });
