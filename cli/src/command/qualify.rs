//! `xpu-top qualify`: measures and judges the performance of each GPU of some hosts, before a job or while it
//! is paused.

mod board;
mod condition;
mod copies;
mod exchange;
mod gemms;
mod history;
mod measure;
mod messages;
mod remote;
mod running;
mod text;
mod timing;
mod worker;

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use xpu_analysis::qualify::{Qualification, Verdict};

use super::output::print_document;
use crate::args::{ConnectionArgs, QualifyArgs, UsageError};

/// How GPUs are measured.
#[derive(Clone, Debug)]
struct How {
    quick: bool,
    beside_job: bool,
    /// How this host's collector is reached.
    connection: ConnectionArgs,
}

pub fn qualify(args: &QualifyArgs) -> anyhow::Result<ExitCode> {
    let how = How { quick: args.quick, beside_job: args.beside_job, connection: args.connection.clone() };
    if args.worker {
        return worker::answer(&how);
    }
    let mut of = if !args.compare.is_empty() {
        let all: Result<_, _> = args.compare.iter().map(|path| read(path)).collect();
        Qualification::merged(all?)
    } else if args.of.are_named() {
        remote::qualify(args)?
    } else {
        Qualification { quick: how.quick, hosts: vec![measure::here(&how).0], ..Qualification::default() }
    };
    if args.compare.is_empty() {
        xpu_wire::build().clone_into(&mut of.version);
    }
    of.judge();
    print_document(&of, args.json, || text::text(&of))?;
    // The program must end even if a call does not return or CUDA's exit handlers hang.
    end(of.verdict)
}

/// Ends the program without waiting for threads that are stuck in a call of the driver.
fn end(verdict: Verdict) -> ! {
    let _ = io::stdout().flush();
    // SAFETY: _exit runs no exit handlers; all output was written.
    unsafe { libc::_exit(verdict.exit_code().into()) }
}

fn read(path: &Path) -> Result<Qualification, UsageError> {
    let wrong = |what: String| UsageError::Value(format!("cannot read {}: {what}", path.display()));
    let bytes = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| wrong(format!("{error}; --compare takes what `xpu-top qualify --json` printed")))
}
