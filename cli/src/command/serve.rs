//! `xpu-top serve`: the web page of a job on many hosts, or of a recording, from this host.
//!
//! The command becomes a relay in front of the job's hosts, which serves the page like every collector, or a
//! collector that reads the recording.

mod recording;

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    net::{Ipv4Addr, TcpListener},
    os::{fd::FromRawFd as _, unix::process::CommandExt as _},
    path::Path,
    process::Command,
};

use anyhow::bail;
use xpu_wire::endpoint::{BasePort, Endpoint};

use crate::{
    args::{ServeArgs, UsageError},
    parts::{Part, Parts},
};

/// Number of ports tried after the first: on a host that trains, a collector has the usual ones.
const TRIES: u16 = 200;

/// Variables of collectors. With them, the relay would serve no page, or a page with another token than the
/// printed one.
const OF_COLLECTORS: [&str; 2] = ["XPU_TOP_NO_HTTP", "XPU_TOP_TOKEN_FILE"];

/// Returns only if it fails.
pub fn serve(args: &ServeArgs) -> anyhow::Result<std::process::ExitCode> {
    if let Some(file) = &args.file {
        return recording::show(file, args);
    }
    if args.of.on.ssh.is_some() {
        let text = "a relay does not reach hosts through ssh; run `xpu-top serve` where their ports are open";
        return Err(UsageError::Value(text.to_owned()).into());
    }
    let hosts = args.of.hosts()?;
    hosts.warnings.iter().for_each(|warning| eprintln!("xpu-top: {warning}"));
    let (program, base) = (Parts::beside_this_program()?.find(Part::Collector)?, choose(args.port)?);
    let mut relay = collector(&program);
    relay
        .args(["--relay", "--job-hosts", "/dev/stdin", "--hosts-base-port"])
        .arg(BasePort::DEFAULT.0.to_string());
    relay.stdin(hosts_file(&hosts.endpoints)?);
    exec(relay, &program, base, args)
}

/// Prints the address of the page, and becomes the program that serves it.
fn exec(
    mut server: Command,
    program: &Path,
    base: BasePort,
    args: &ServeArgs,
) -> anyhow::Result<std::process::ExitCode> {
    server.args(["--bind", "127.0.0.1", "--http-bind", "127.0.0.1", "--base-port", &base.0.to_string()]);
    if let Some(path) = &args.of.connection.key_file {
        server.arg("--key-file").arg(path);
    }
    let token = match args.of.connection.key()? {
        Some(_) => format!("#token={}", token(program, args)?),
        None => String::new(),
    };
    let job = args.of.job.as_ref().map_or_else(String::new, |job| format!("?job={job}"));
    println!("http://127.0.0.1:{}/{job}{token}", base.http());
    let error = server.exec();
    bail!("cannot start {}: {error}; install xpu-top again", program.display())
}

fn collector(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in OF_COLLECTORS {
        command.env_remove(name);
    }
    command
}

/// Creates a file in memory; a file on disk would remain.
fn in_memory() -> io::Result<File> {
    // SAFETY: the name is NUL-terminated and 'static.
    let file = unsafe { libc::memfd_create(c"xpu-top-serve".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { File::from_raw_fd(file) })
}

/// Writes a hosts file, because thousands of hosts are too long for an argument.
fn hosts_file(hosts: &[Endpoint]) -> io::Result<File> {
    let mut file = in_memory()?;
    let lines: Vec<String> = hosts.iter().map(|host| format!("{host}\n")).collect();
    let lines = lines.concat();
    file.write_all(lines.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

/// The token for which the page asks, as the collector derives it from the key.
fn token(program: &Path, args: &ServeArgs) -> anyhow::Result<String> {
    let mut command = collector(program);
    command.arg("--print-token");
    if let Some(path) = &args.of.connection.key_file {
        command.arg("--key-file").arg(path);
    }
    let output = command.output()?;
    let token = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if token.is_empty() {
        bail!("no token: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(token)
}

/// The given port, or the next free one after the usual ones.
fn choose(named: Option<BasePort>) -> anyhow::Result<BasePort> {
    if let Some(base) = named {
        if is_free(base) {
            return Ok(base);
        }
        bail!("a port from {} to {} is taken; choose another --port", base.http(), base.control());
    }
    let candidates = (1..=TRIES).filter_map(|n| BasePort::new(BasePort::DEFAULT.0 + 3 * n));
    match candidates.into_iter().find(|base| is_free(*base)) {
        Some(base) => Ok(base),
        None => bail!("no free ports after {}; choose them with --port", BasePort::DEFAULT.0),
    }
}

fn is_free(base: BasePort) -> bool {
    let ports = [base.http(), base.data(), base.control()];
    ports.iter().all(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
}

#[cfg(test)]
mod tests {
    use xpu_model::hosts::Hosts;

    use super::*;

    #[test]
    fn the_relay_reads_all_hosts() {
        let listed = "node[00001-16000]:19001,10.0.0.7,[::1],[fe80::1]:18900";
        let hosts = Hosts::from_list(listed, BasePort::DEFAULT).endpoints;
        let mut command = Command::new("cat");
        let output = command.arg("/dev/stdin").stdin(hosts_file(&hosts).unwrap()).output().unwrap();
        assert!(output.stdout.len() > 128 << 10, "more than one argument may have");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        std::fs::write(&path, output.stdout).unwrap();
        let read = Hosts::from_file(&path, BasePort::DEFAULT).unwrap();
        assert_eq!((read.endpoints, read.warnings), (hosts, Vec::new()));
    }
}
