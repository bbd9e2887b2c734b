//! `xpu-top serve`: the web page of a job on many hosts, from this host.
//!
//! It becomes a relay in front of the job's hosts, which serves the page like every collector.

use std::{
    net::{Ipv4Addr, TcpListener},
    os::unix::process::CommandExt as _,
    process::Command,
};

use anyhow::bail;
use xpu_wire::endpoint::BasePort;

use crate::{
    args::{ServeArgs, UsageError},
    parts::{Part, Parts},
};

/// Ports tried after the first: on a host that trains, a collector has the usual ones.
const TRIES: u16 = 200;

/// Returns only if it failed.
pub fn serve(args: &ServeArgs) -> anyhow::Result<std::process::ExitCode> {
    if args.of.ssh.is_some() {
        let text = "a relay does not reach hosts through ssh; run `xpu-top serve` where their ports are open";
        return Err(UsageError::Value(text.to_owned()).into());
    }
    let hosts = args.of.hosts()?;
    let key = args.of.way.key()?;
    let program = Parts::beside_this_program()?.find(Part::Collector)?;
    let base = choose(args.port)?;
    let listed = hosts.endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let mut relay = Command::new(&program);
    relay.args(["--relay", "--hosts", &listed, "--hosts-base-port", &BasePort::DEFAULT.0.to_string()]);
    relay.args(["--bind", "127.0.0.1", "--http-bind", "127.0.0.1", "--base-port", &base.0.to_string()]);
    let mut about = String::new();
    if let Some(path) = &args.of.way.key_file {
        relay.arg("--key-file").arg(path);
    }
    if key.is_some() {
        about = format!("#token={}", token(&program, args)?);
    }
    let job = args.of.job.as_ref().map_or_else(String::new, |job| format!("?job={job}"));
    println!("http://127.0.0.1:{}/{job}{about}", base.http());
    let error = relay.exec();
    bail!("cannot start {}: {error}; install xpu-top again", program.display())
}

/// The page asks for it. The collector derives it from the key.
fn token(program: &std::path::Path, args: &ServeArgs) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.arg("--print-token");
    if let Some(path) = &args.of.way.key_file {
        command.arg("--key-file").arg(path);
    }
    let output = command.output()?;
    let token = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if token.is_empty() {
        bail!("no token: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(token)
}

/// The port that was named, or the next after the usual ones that is free.
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
