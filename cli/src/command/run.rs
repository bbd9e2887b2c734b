//! `xpu-top run`: replaces itself with the given program, with the hook loaded and a collector on the host.
//!
//! Nothing here may prevent the start of training: if something is missing, one line on stderr says so, and
//! the job is not watched.

mod collector;
mod gpu_core;
mod inherited;
mod kineto;
mod name;
mod preload;
mod profiler;
mod program;
mod sanitizer;

use std::{
    ffi::OsStr,
    io::{self, Write as _},
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    path::Path,
    process::{Command, ExitCode},
};

use xpu_model::{
    duration::WhatIfEvery,
    expected::{self, Expected},
    hosts::Hosts,
};
use xpu_net::key::{Key, KeyError};
use xpu_wire::{
    endpoint::{BasePort, RuntimeDir, RuntimeDirError, variable},
    functions::RequestedFunctions,
    id::{JobName, Pid},
};

use crate::{
    args::{RunArgs, UsageError},
    parts::{Part, Parts},
};

/// A shell's exit codes for a program that it cannot find, and for one that it may not run.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

/// Starts the program under the hook. Settings are read only if a collector is started.
pub fn run(args: &RunArgs) -> Result<ExitCode, UsageError> {
    let base = args.connection.base()?;
    let [program, rest @ ..] = &args.command[..] else {
        return Err(UsageError::Value("nothing to start; write xpu-top run -- COMMAND".to_owned()));
    };
    // Options that clap does not know are taken for the command.
    if program.as_bytes().starts_with(b"-") {
        let option = program.to_string_lossy();
        return Err(UsageError::Value(format!(
            "run has no option {option}; `xpu-top run --help` lists its options, and the command follows them"
        )));
    }
    inherited::ignore_file_size_limit();
    let key = ensure_key(args.connection.key_file.as_deref());
    let mut command = Command::new(program);
    command.args(rest);
    let prepared = runtime_dir().map_err(anyhow::Error::from).and_then(|runtime| {
        prepare(&mut command, args, &runtime, base)?;
        Ok(runtime)
    });
    let runtime = match prepared {
        Ok(runtime) => runtime,
        Err(why) => {
            warn(&format!("{why}; the job starts without xpu-top"));
            return Ok(exec(&mut command, program));
        }
    };
    let asked = RequestedFunctions::of(|name| std::env::var(name).ok());
    for wrong in asked.iter().flat_map(|asked| &asked.wrong) {
        warn(&format!("{wrong}; captures leave it out"));
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    if let Some(line) = not_understood(names) {
        warn(&line);
    }
    announce(&runtime, base, job(args));
    if !args.no_collector
        && let Err(why) = collector::ensure(&runtime, base, &key, || what_if_every(args))
    {
        warn(&format!("no collector: {why}; the job runs, but is not shown"));
    }
    if !args.no_kineto {
        command.envs(kineto::variables(&runtime, base));
    }
    Ok(exec(&mut command, program))
}

/// The interval from the command line, else from the settings. `None` if only the variable is set, which the
/// collector reads itself.
fn what_if_every(args: &RunArgs) -> Option<WhatIfEvery> {
    if args.what_if_every.is_some() || std::env::var_os(WhatIfEvery::VARIABLE).is_some() {
        return args.what_if_every;
    }
    let settings =
        args.settings.read().map_err(|why| warn(&format!("{why}; the settings are ignored"))).ok()?;
    Some(settings.what_if_every)
}

/// Variables of xpu-timer that have an effect here.
const OF_XPU_TIMER: [&str; 2] = [variable::EXIT_PLUGIN_OF_XPU_TIMER, variable::FUNCTIONS_OF_XPU_TIMER];

/// A line with the variables of xpu-timer and its predecessor that have no effect here.
fn not_understood(names: impl Iterator<Item = String>) -> Option<String> {
    let foreign = |name: &String| {
        ["XPU_TIMER_", "ATORCH_"].iter().any(|begin| name.starts_with(begin))
            && !OF_XPU_TIMER.contains(&&**name)
    };
    let mut names: Vec<_> = names.filter(foreign).collect();
    names.sort_unstable();
    let is = if names.len() == 1 { "is" } else { "are" };
    (!names.is_empty()).then(|| {
        format!(
            "{} {is} set and ignored; docs/http.md lists the variables that have an effect",
            names.join(", ")
        )
    })
}

/// Replaces this process by the program. Returns only if that fails.
fn exec(command: &mut Command, program: &OsStr) -> ExitCode {
    inherited::restore(command);
    let mut error = command.exec();
    if error.kind() == io::ErrorKind::ArgumentListTooLong {
        // With the hook's variables, arguments and environment may exceed the size limit, so the program
        // starts without them.
        let mut plain = Command::new(program);
        plain.args(command.get_args());
        inherited::restore(&mut plain);
        error = plain.exec();
    }
    let (code, hint) = match error.kind() {
        io::ErrorKind::NotFound if program.as_bytes().contains(&b'/') => {
            (NOT_FOUND, "no such file".to_owned())
        }
        io::ErrorKind::NotFound => {
            (NOT_FOUND, "not found in PATH; give its path, or activate its environment first".to_owned())
        }
        _ => (NOT_RUNNABLE, error.to_string()),
    };
    warn(&format!("cannot start '{}': {hint}", program.to_string_lossy()));
    ExitCode::from(code)
}

/// Makes the collector wait for this process, which becomes the program and keeps its pid. Warns if another
/// process has the same rank.
fn announce(runtime: &RuntimeDir, base: BasePort, job: JobName) {
    let rank = variable::LAUNCHERS
        .iter()
        .find_map(|launcher| std::env::var(launcher.rank).ok().filter(|text| !text.is_empty()));
    let this = Expected { pid: Pid(std::process::id()), job, rank };
    let others = expected::living(runtime, base);
    let same =
        |other: &&Expected| (&other.job, &other.rank) == (&this.job, &this.rank) && other.pid != this.pid;
    if let Some(other) = others.iter().find(same) {
        warn(&format!(
            "job {} runs here already (process {}); if this is another job, name it with --job NAME",
            this.job, other.pid
        ));
    }
    if let Err(why) = expected::announce(runtime, base, &this) {
        warn(&format!(
            "cannot announce the job to its collector: {why}; a job that loads slowly may not be shown"
        ));
    }
}

/// Writes a warning. If that fails, as on a full disk, the program still starts.
fn warn(what: &str) {
    let _ = writeln!(io::stderr(), "xpu-top run: {what}");
}

/// The job's runtime directory: no other user may control it.
fn runtime_dir() -> Result<RuntimeDir, RuntimeDirError> {
    match RuntimeDir::claim() {
        Ok(located) => {
            if let Some(why) = located.why() {
                warn(&format!("{why}; {} is used instead", located.dir.path().display()));
            }
            Ok(located.dir)
        }
        Err(why) => {
            // A directory of root's cannot be claimed, but a collector of another user may serve in it.
            let named = RuntimeDir::locate();
            if named.check().is_ok() { Ok(named) } else { Err(why) }
        }
    }
}

/// Sets the hook's variables.
fn prepare(
    command: &mut Command,
    args: &RunArgs,
    runtime: &RuntimeDir,
    base: BasePort,
) -> anyhow::Result<()> {
    let hook = Parts::beside_this_program()?.find(Part::Hook)?;
    let socket = runtime.socket(base)?;
    let before = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    if let Some(executable) = program::Executable::of(command.get_program()) {
        if executable.is_of_musl() {
            warn("this program is linked against musl: only the glibc programs that it starts are watched");
        }
        if let Some(needed) = sanitizer::missing(&executable.needed, preload::listed(&before)) {
            anyhow::bail!(
                "this program is built with AddressSanitizer, which must be loaded first: LD_PRELOAD={needed} xpu-top run -- ..."
            );
        }
    }
    command.env("LD_PRELOAD", preload::with(&hook, &before)?);
    command.envs(profiler::variable(&hook));
    command.env(variable::JOB, job(args).as_str());
    command.env(variable::SOCKET, socket);
    if args.gpu_core || args.gpu_core_on_hang {
        match gpu_core::variables(runtime) {
            Ok(variables) => {
                command.envs(variables);
                gpu_core::lacks_space(runtime, &args.command).inspect(|what| warn(what));
            }
            Err(why) => warn(&format!("{why}: kernels on the GPUs cannot be named")),
        }
    }
    if args.gpu_core_on_hang {
        command.env(variable::GPU_CORE, variable::GPU_CORE_ON_HANG);
    }
    if let Some(line) = &args.on_hang {
        command.env(variable::ON_HANG, line);
    }
    if let Some(path) = &args.job_hosts {
        match Hosts::from_file(path, base) {
            Err(error) => warn(&UsageError::HostsFile { path: path.clone(), error }.to_string()),
            Ok(hosts) if hosts.endpoints.is_empty() => {
                warn(&UsageError::NoHosts(path.display().to_string()).to_string());
            }
            Ok(hosts) => {
                hosts.warnings.iter().for_each(|warning| warn(&warning.to_string()));
                command.env(variable::JOB_HOSTS, std::path::absolute(path)?);
            }
        }
    }
    if let Some(key_file) = &args.connection.key_file {
        command.env(variable::KEY_FILE, std::path::absolute(key_file)?);
    }
    Ok(())
}

fn job(args: &RunArgs) -> JobName {
    let set = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    args.job.clone().unwrap_or_else(|| {
        let text = set(variable::JOB)
            .or_else(|| set("SLURM_JOB_ID").map(|id| format!("slurm-{id}")))
            .unwrap_or_else(|| name::of_script(&args.command));
        JobName::cleaned(&text)
    })
}

/// The key for the collector.
#[derive(Debug)]
pub enum CollectorKey<'a> {
    /// The key in the file that the collector reads by default.
    Usual,
    Named(&'a Path),
    /// No key: the collector listens on this host only.
    None,
}

/// The key, made if this is the first use.
fn ensure_key(named: Option<&Path>) -> CollectorKey<'_> {
    match find_or_make(named) {
        Ok(()) => named.map_or(CollectorKey::Usual, CollectorKey::Named),
        Err(why) => {
            warn(&format!("no key: {why}; this job can be watched only from this host"));
            CollectorKey::None
        }
    }
}

fn find_or_make(named: Option<&Path>) -> Result<(), UsageError> {
    let nowhere = || UsageError::Value("no home directory; name a file in XPU_TOP_KEY_FILE".to_owned());
    match Key::find(named) {
        Ok(Some(_)) => return Ok(()),
        // If the given key file does not exist, it is created.
        Ok(None) => {}
        Err(KeyError::Unreadable { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let path = named.map(Path::to_owned).or_else(Key::path).ok_or_else(nowhere)?;
    match Key::generate()?.write_new(&path) {
        // Another rank has created it first.
        Err(KeyError::Unwritable { error, .. }) if error.kind() == io::ErrorKind::AlreadyExists => {
            Key::read(&path)?;
        }
        written => written?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_another_that_mean_nothing_are_named_in_one_line() {
        let said = |names: &[&str]| not_understood(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(said(&["PATH", "XPU_TOP_JOB", "XPU_TIMER_EXIT_HOOK_PLUGIN"]), None);
        assert_eq!(said(&["XPU_TIMER_HOST_TRACING_FUNC"]), None);
        let line = said(&["XPU_TIMER_PORT", "ATORCH_TIMER", "HOME"]).unwrap();
        assert!(line.starts_with("ATORCH_TIMER, XPU_TIMER_PORT are set and ignored"), "{line}");
    }
}
