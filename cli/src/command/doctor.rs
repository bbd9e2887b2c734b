//! `xpu-top doctor`: checks everything that watching needs, and says how to fix each problem.

mod bundle;
mod check;
mod hosts;
mod kineto;
mod libraries;
mod machine;
mod ports;
mod preload;
mod redaction;
mod started;

use std::process::ExitCode;

use check::{Check, State};
use serde::Serialize;

use super::output::print_document;
use crate::args::DoctorArgs;

/// The results of all checks.
#[derive(Debug, Serialize)]
pub struct Examination {
    version: &'static str,
    host: String,
    /// The worst of all.
    verdict: State,
    checks: Vec<Check>,
}

pub fn doctor(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let examination = examine(args)?;
    if let Some(path) = &args.bundle {
        let packed = bundle::write(path, &examination, args)?;
        eprintln!(
            "{}: {packed} files, without keys, tokens and your name; check it before you share it",
            path.display()
        );
    }
    print_document(&examination, args.json, || examination.text())?;
    Ok(if examination.verdict == State::Fail { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn examine(args: &DoctorArgs) -> anyhow::Result<Examination> {
    let base = args.connection.base()?;
    let mut checks = preload::checks();
    checks.extend(libraries::checks());
    let holder = ports::holder(base);
    checks.extend(machine::checks(base, &holder, args.connection.key_file.as_deref()));
    checks.extend(hosts::checks(args, &holder)?);
    let verdict = checks.iter().map(|check| check.state).max().unwrap_or(State::Ok);
    let host = xpu_wire::endpoint::host_name().to_string();
    Ok(Examination { version: xpu_wire::build(), host, verdict, checks })
}

impl Examination {
    fn text(&self) -> String {
        let mut text = String::new();
        for check in &self.checks {
            text += &check.text();
        }
        let count = |state| self.checks.iter().filter(|check| check.state == state).count();
        let verdict = match (count(State::Fail), count(State::Warn)) {
            (0, 0) => "all is well\n".to_owned(),
            (0, warnings) => format!("it works, with {warnings}\n"),
            (failures, _) => format!("{failures} to fix before it works\n"),
        };
        text + &verdict
    }
}
