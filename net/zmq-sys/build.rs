//! Builds the vendored libzmq against the vendored libsodium, so that CURVE works.
//!
//! The published zmq-sys 0.12.0 hardcodes `with_libsodium(None)`: every `set_curve_*` then returns EINVAL.
//! Only this file differs from the published one: it adds libsodium, descriptors that are closed on exec,
//! Unix sockets that can ask the kernel for the connecting user, and queues that grow in small pieces
//! (`settings.hpp`).

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=settings.hpp");
    println!("cargo:rerun-if-env-changed=PROFILE");
    let lib = env::var("DEP_SODIUM_LIB").expect("libsodium-sys-stable says where it put libsodium");
    let include = env::var("DEP_SODIUM_INCLUDE").expect("libsodium-sys-stable says where its headers are");
    // zeromq-src does not probe the system: without these settings, programs that the host program starts
    // would inherit every descriptor of libzmq.
    let close_on_exec = "-DZMQ_IOTHREAD_POLLER_USE_EPOLL_CLOEXEC -DZMQ_HAVE_EVENTFD_CLOEXEC \
                         -DZMQ_HAVE_SOCK_CLOEXEC -DHAVE_ACCEPT4";
    let peer_credentials = "-DZMQ_HAVE_SO_PEERCRED";
    // The path must have no spaces. This relative path has none, and works because build scripts run in this
    // folder.
    let settings = "-include settings.hpp";
    // libzmq is third-party code: its compiler warnings do not concern this project's users.
    env::set_var("CXXFLAGS", format!("{} -w {settings} {close_on_exec} {peer_credentials}", env::var("CXXFLAGS").unwrap_or_default()));
    // zeromq-src prints the search path in quotes, which the linker takes as part of the path.
    println!("cargo:rustc-link-search=native={lib}");
    zeromq_src::Build::new()
        .with_libsodium(Some(zeromq_src::LibLocation::new(lib, include)))
        .build();
}
