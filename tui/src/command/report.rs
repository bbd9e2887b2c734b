//! `xpu-top report`: what a capture holds.

mod html;
mod read;
mod select;
mod table;
mod tables;
mod text;

use std::{io::Write as _, path::Path, process::ExitCode};

use anyhow::Context as _;
use xpu_shared::{
    capture::{Capture, Report},
    status::ExitCode as Code,
};

use super::{record::fresh, stacks::print};
use crate::args::ReportArgs;
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
    let mut capture = read(&args.file)?;
    let groups = args.select.apply(&mut capture)?;
    let mut report = Report::of(&capture);
    report.place(groups);
    if let Some(path) = &args.html {
        let page = html::html(&capture, &report, args.top);
        if path == Path::new("-") {
            print(&page)?;
        } else {
            fresh(path)?
                .write_all(page.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    if args.json {
        print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
    } else if args.html.is_none() {
        print(&text::text(&report, args.top))?;
    }
    Ok(ExitCode::from(if report.ranks.is_empty() { Code::NoData as u8 } else { 0 }))
}
