//! `xpu-top`: parses the command line and runs the screen or a command.

use std::{io::Write as _, path::Path, process::ExitCode};

use clap::{
    Parser as _,
    error::{ContextKind, ContextValue, ErrorKind},
};
use xpu_client::{
    live,
    new_file::NotWritable,
    screen_capture::{Capturer, Targets},
};
use xpu_model::status::ExitCode as Code;
use xpu_top::{
    args::{Command, CommandLine, PastRun, UsageError},
    command,
};
use xpu_tui::{
    file_loader::Label,
    watch::{Replayed, WatchOptions, watch},
};

/// A file or folder that was given to a command which reads it with `--replay`.
fn misplaced_path(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return None };
    let usage = error.to_string();
    let takes = ["status", "stacks", "collectives", "ras"].map(|command| format!("xpu-top {command} "));
    let is_path = error.kind() == ErrorKind::UnknownArgument && Path::new(given).exists();
    (is_path && takes.iter().any(|command| usage.contains(command))).then(|| given.clone())
}

fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => {
            let _ = error.print();
            if let Some(path) = misplaced_path(&error) {
                let hint = format!("to read a recording or an incident folder, write --replay {path}");
                let _ = writeln!(std::io::stderr(), "{hint}");
            }
            // Help and version were asked for.
            return ExitCode::from(if error.use_stderr() { Code::Usage as u8 } else { 0 });
        }
    };
    let outcome = match &line.command {
        None => match &line.replay {
            Some(path) => replay(path, &line),
            None => show(&line),
        },
        Some(Command::Run(args)) => command::run::run(args).map_err(Into::into),
        Some(Command::Record(args)) => command::record::record(args),
        Some(Command::Capture(args)) => command::capture::capture(args),
        Some(Command::Kineto(args)) => command::kineto::kineto(args),
        Some(Command::Report(args)) => command::report::report(args),
        Some(Command::Diff(args)) => command::diff::diff(args),
        Some(Command::WhatIf(args)) => command::what_if::what_if(args),
        Some(Command::Export(args)) => command::export::export(args),
        Some(Command::GemmReplay(args)) => command::gemm_replay::gemm_replay(args),
        Some(Command::Qualify(args)) => command::qualify::qualify(args),
        Some(Command::Status(args)) => command::status::status(args),
        Some(Command::Findings(args)) => command::findings::findings(args),
        Some(Command::Collectives(args)) => command::collectives::collectives(args),
        Some(Command::Ras(args)) => command::ras::ras(args),
        Some(Command::Stacks(args)) => command::stacks::stacks(args),
        Some(Command::GpuCore(args)) => command::stacks::stacks(&args.into()),
        Some(Command::Serve(args)) => command::serve::serve(args),
        Some(Command::Ctl(args)) => command::ctl::ctl(args),
        Some(Command::Demo(args)) => command::demo::demo(args),
        Some(Command::Doctor(args)) => command::doctor::doctor(args),
        Some(Command::Config(args)) => command::config::config(args),
        Some(Command::Keygen(args)) => command::keygen::keygen(args).map_err(Into::into),
    };
    outcome.unwrap_or_else(|error| {
        // Without a terminal, there is no reader.
        let _ = writeln!(std::io::stderr(), "xpu-top: {error:#}");
        if error.is::<UsageError>() || error.is::<NotWritable>() {
            ExitCode::from(Code::Usage as u8)
        } else {
            ExitCode::FAILURE
        }
    })
}

/// Shows a recording on the screen.
fn replay(path: &Path, line: &CommandLine) -> anyhow::Result<ExitCode> {
    let (cursor, at) = command::past::opened(path, line.at.as_deref())?;
    let config = line.config()?;
    let look = line.look.look(config.look)?;
    // The end of a capture shows its captured steps; Space plays the minute before.
    let begin = (line.at.is_some() || path.is_dir() || Label::is_capture(path)).then_some(at);
    let (nobody, arrivals) = tokio::sync::mpsc::channel(1);
    drop(nobody);
    let options = WatchOptions {
        job: line.watch.job.clone(),
        groups: line.groups.clone(),
        look,
        replayed: Some(Replayed { cursor, begin }),
        runs: line.baseline.as_ref().map(PastRun::runs).transpose()?,
        filter: line.filter.clone(),
        config,
        ..WatchOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(watch(arrivals, Vec::new(), options))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the screen.
fn show(line: &CommandLine) -> anyhow::Result<ExitCode> {
    let args = &line.watch;
    let (hosts, config) = (args.hosts()?, line.config()?);
    let look = line.look.look(config.look)?;
    let key = args.connection.key()?;
    let capturer = Capturer::new(Targets { endpoints: hosts.endpoints.clone(), key: key.clone() });
    let (live, arrivals) = live::connect(hosts.endpoints.clone(), key, args.job.clone());
    let warnings = hosts.warnings.iter().map(ToString::to_string).collect();
    let options = WatchOptions {
        job: args.job.clone(),
        groups: line.groups.clone(),
        look,
        warnings,
        filter: line.filter.clone(),
        config,
        runs: line.baseline.as_ref().map(PastRun::runs).transpose()?,
        live: Some(live),
        capturer: Some(capturer),
        ..WatchOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(watch(arrivals, hosts.endpoints, options))?;
    Ok(ExitCode::SUCCESS)
}
