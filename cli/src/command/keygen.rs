//! `xpu-top keygen`: creates the key, for hosts that do not share a home folder.

use std::{
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

use xpu_net::key::Key;

use crate::{
    args::{KeygenArgs, UsageError},
    parts::{Part, Parts},
};

pub fn keygen(args: &KeygenArgs) -> Result<ExitCode, UsageError> {
    if args.token {
        return Err(print_token(args));
    }
    let path = args.output.clone().or_else(Key::path).ok_or_else(|| {
        UsageError::Value("no home directory to put the key into; name a file with -o FILE".to_owned())
    })?;
    Key::generate()?.write_new(&path)?;
    println!("{}", path.display());
    eprintln!(
        "Hosts with this file show their jobs only to you. Copy it, mode 0600, to hosts that do not share your home."
    );
    Ok(ExitCode::SUCCESS)
}

/// Becomes the collector, which derives the token and prints it. Returns only if that fails.
fn print_token(args: &KeygenArgs) -> UsageError {
    let parts = Parts::beside_this_program().map_err(|error| error.to_string());
    let program = match parts.and_then(|parts| parts.find(Part::Collector).map_err(|error| error.to_string()))
    {
        Ok(program) => program,
        Err(error) => return UsageError::Value(error),
    };
    let mut command = Command::new(&program);
    command.arg("--print-token");
    if let Some(path) = &args.output {
        command.arg("--key-file").arg(path);
    }
    let error = command.exec();
    UsageError::Value(format!("cannot start {}: {error}; install xpu-top again", program.display()))
}
