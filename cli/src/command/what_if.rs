//! `xpu-top what-if`: the time of a step without stragglers.

mod live;
#[cfg(feature = "parquet")]
mod pages;
mod text;
#[cfg(feature = "parquet")]
mod trace;
#[cfg(not(feature = "parquet"))]
mod trace {
    pub(super) fn read(_: &std::path::Path) -> Result<Vec<xpu_analysis::what_if::Row>, String> {
        Err(crate::NO_PARQUET.to_owned())
    }
}

use std::{fs::File, io::Read as _, path::Path, process::ExitCode};

use xpu_analysis::what_if::{Job, WhatIf};
use xpu_model::status::ExitCode as Code;

use super::{output::print_document, report::read};
use crate::args::{UsageError, WhatIfArgs};

/// The first bytes of a Parquet file.
const PARQUET: [u8; 4] = *b"PAR1";

pub fn what_if(args: &WhatIfArgs) -> anyhow::Result<ExitCode> {
    // Without a file it runs live; the arguments ensure that one of the two is given.
    let Some(path) = &args.file else { return live::watch(args) };
    let job = if first_bytes(path)? == PARQUET {
        let rows = trace::read(path);
        let rows = rows.map_err(|why| UsageError::Value(format!("cannot read {}: {why}", path.display())))?;
        Job::of_trace(&rows)
    } else {
        Job::of_capture(&read(path)?)
    };
    let job = match job {
        Ok(job) => job,
        // The file was read but cannot be simulated.
        Err(why) => {
            eprintln!("xpu-top: cannot simulate {}: {why}", path.display());
            return Ok(ExitCode::from(Code::NoData as u8));
        }
    };
    let figures = WhatIf::of(&job);
    print_document(&figures, args.json, || text::text(&figures, args.top))?;
    Ok(ExitCode::SUCCESS)
}

fn first_bytes(path: &Path) -> Result<[u8; 4], UsageError> {
    let wrong = |error: std::io::Error| UsageError::Value(format!("cannot read {}: {error}", path.display()));
    let (mut bytes, mut read) = ([0; 4], 0);
    let mut file = File::open(path).map_err(wrong)?;
    while read < bytes.len() {
        match file.read(&mut bytes[read..]).map_err(wrong)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(bytes)
}
