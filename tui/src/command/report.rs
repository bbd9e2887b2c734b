//! `xpu-top report`: what a capture holds.

mod read;
mod select;
mod table;
mod tables;
mod text;

use std::process::ExitCode;

use xpu_shared::{capture::Report, status::ExitCode as Code};

use super::stacks::print;
use crate::args::ReportArgs;
pub(super) use read::read;
pub(super) use table::Table;

pub fn report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let mut capture = read(&args.file)?;
    let groups = args.select.apply(&mut capture)?;
    let mut report = Report::of(&capture);
    report.place(groups);
    print(&if args.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        text::text(&report, args.top)
    })?;
    Ok(ExitCode::from(if report.ranks.is_empty() { Code::NoData as u8 } else { 0 }))
}
