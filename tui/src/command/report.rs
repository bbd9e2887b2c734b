//! `xpu-top report`: what a capture holds.

mod html;
mod read;
mod select;
mod table;
mod tables;
mod text;

use std::process::ExitCode;

use xpu_analysis::capture::{Capture, Report};
use xpu_model::status::ExitCode as Code;

use super::stacks::{print, write_to};
use crate::{args::ReportArgs, new_file};
pub(super) use read::read;
pub(crate) use read::{NO_CAPTURE, open};
pub(super) use table::Table;
pub(crate) use text::preface;

/// Rows of each table on a page that nobody said otherwise of.
const ROWS: usize = 20;

/// A capture's report as a page.
pub(crate) fn page(capture: &Capture) -> String {
    html::html(capture, &Report::of(capture), ROWS)
}

pub fn report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    new_file::check(&args.html)?;
    let mut capture = read(&args.file)?;
    let groups = args.select.apply(&mut capture)?;
    let mut report = Report::of(&capture);
    report.place(groups);
    if let Some(path) = &args.html {
        write_to(path, html::html(&capture, &report, args.top).as_bytes())?;
    }
    if args.json {
        print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
    } else if args.html.is_none() {
        print(&text::text(&report, args.top))?;
    }
    Ok(ExitCode::from(if report.ranks.is_empty() { Code::NoData as u8 } else { 0 }))
}
