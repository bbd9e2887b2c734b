//! `xpu-top report`: summarizes a capture.

mod read;
mod select;

use std::process::ExitCode;

pub(super) use read::read;
use xpu_analysis::{capture::Report, render};
use xpu_client::new_file;
use xpu_model::status::ExitCode as Code;

use super::{
    output::{print, print_json},
    stacks::write_to,
};
use crate::args::ReportArgs;

pub fn report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    new_file::check(&args.html)?;
    let mut capture = read(&args.file)?;
    let groups = args.select.apply(&mut capture)?;
    let mut report = Report::of(&capture);
    report.place(groups);
    if let Some(path) = &args.html {
        write_to(path, render::html(&capture, &report, args.top).as_bytes())?;
    }
    if args.json {
        print_json(&report)?;
    } else if args.html.is_none() {
        print(&render::text(&report, args.top))?;
    }
    let is_empty = report.ranks.is_empty() && report.behaviour.workers.is_empty();
    Ok(ExitCode::from(if is_empty { Code::NoData as u8 } else { 0 }))
}
