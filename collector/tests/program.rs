//! Tests of the program itself: its start, its ready line, and its exit.

// A helper that cannot go on panics, as a test does.
#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::TcpListener,
    os::{fd::AsRawFd as _, unix::process::CommandExt as _},
    path::PathBuf,
    process::{Child, Command, Stdio, id},
};

struct Started {
    child: Child,
    base: u16,
    line: String,
    dir: PathBuf,
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Starts the program with a pipe for its first line.
fn start(name: &str, bind: &str, more: &[&str]) -> Started {
    let base = free_ports(bind);
    let dir = std::env::temp_dir().join(format!("xpu-top-program-{}-{name}", id()));
    let (read, write) = std::io::pipe().unwrap();
    let descriptor = write.as_raw_fd();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xpu-collector"));
    command
        .args([
            "--base-port",
            &base.to_string(),
            "--ready-fd",
            &descriptor.to_string(),
            "--bind",
            bind,
            "--runtime-dir",
        ])
        .arg(&dir)
        .args(more)
        .env_remove("XPU_TOP_KEY_FILE")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .stderr(Stdio::piped());
    // SAFETY: fcntl is async-signal-safe; the descriptor stays open until the child has been started.
    unsafe {
        command.pre_exec(move || match libc::fcntl(descriptor, libc::F_SETFD, 0) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let child = command.spawn().unwrap();
    drop(write);
    let mut line = String::new();
    BufReader::new(read).read_line(&mut line).unwrap();
    Started { child, base, line, dir }
}

/// The first of three consecutive free ports.
fn free_ports(address: &str) -> u16 {
    loop {
        let first = TcpListener::bind((address, 0)).unwrap();
        let base = first.local_addr().unwrap().port();
        let is_free = |port| TcpListener::bind((address, port)).is_ok();
        if (1..=2).all(|next| base.checked_add(next).is_some_and(is_free)) {
            return base;
        }
    }
}

fn address(n: u8) -> String {
    let [_, _, high, low] = id().to_be_bytes();
    format!("127.{}.{high}.{}", 200 + n, low.max(1))
}

#[test]
fn a_collector_notifies_ready_and_ends_cleanly_at_a_signal() {
    let mut started = start("ready", &address(0), &[]);
    assert_eq!(started.line, "ready\n");
    let socket = started.dir.join(format!("collector-{}.sock", started.base));
    assert!(socket.exists());
    // SAFETY: kill touches no memory, and the child has not been waited for.
    unsafe { libc::kill(started.child.id() as i32, libc::SIGTERM) };
    assert!(started.child.wait().unwrap().success());
    assert!(!socket.exists());
}

#[test]
fn a_second_collector_exits_quietly() {
    let first = start("second", &address(1), &[]);
    assert_eq!(first.line, "ready\n");
    let mut second = Command::new(env!("CARGO_BIN_EXE_xpu-collector"))
        .args(["--base-port", &first.base.to_string(), "--bind", &address(1), "--runtime-dir"])
        .arg(&first.dir)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(second.wait().unwrap().success());
}

#[test]
fn a_remote_bind_without_a_key_is_refused_in_one_line() {
    let mut started = start("remote", "0.0.0.0", &[]);
    assert!(
        started.line.contains("without a key") && started.line.contains("xpu-top keygen"),
        "{}",
        started.line
    );
    assert!(!started.child.wait().unwrap().success());
    let mut log = String::new();
    started.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
}
