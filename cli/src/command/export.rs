//! `xpu-top export`: writes a capture in formats of other programs.

mod csv;
mod kineto;
#[cfg(feature = "parquet")]
mod parquet;
mod profile;
mod sheet;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use flate2::{Compression, write::GzEncoder};
use sheet::{SHEETS, Source};
use xpu_analysis::{
    capture::Clocks,
    export::{chrome, folded, perfetto, python, timeline::Timeline},
};
use xpu_client::new_file;
use xpu_model::status::ExitCode as Code;

use super::{collectives, report::read};
use crate::args::{ExportArgs, UsageError};

#[cfg(not(feature = "parquet"))]
mod parquet {
    use super::sheet::{Source, TableSchema};

    pub(super) fn write(_: &TableSchema, _: &Source<'_>, _: impl std::io::Write) -> anyhow::Result<()> {
        anyhow::bail!(crate::NO_PARQUET)
    }
}

pub fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.flight_recorder {
        return collectives::write_flight_recorder(&args.file, folder);
    }
    let ExportArgs {
        file, perfetto, chrome, kineto, csv, parquet, folded, flame, kind, select, traces, ..
    } = args;
    if [perfetto, chrome, kineto, csv, parquet, folded, flame].iter().all(|out| out.is_none()) {
        let forms = "name an output: --perfetto, --chrome, --folded or --flame FILE, --kineto, --csv, --parquet or --flight-recorder DIR";
        return Err(UsageError::Value(forms.to_owned()).into());
    }
    let wanted: Vec<_> = SHEETS.iter().filter(|sheet| sheet.is_selected(kind)).collect();
    let tables: Vec<(&PathBuf, _)> = [(csv, "csv"), (parquet, "parquet")]
        .into_iter()
        .filter_map(|(place, of)| Some((place.as_ref()?, of)))
        .collect();
    let in_tables =
        tables.iter().flat_map(|&(place, of)| wanted.iter().map(move |sheet| sheet.path(place, of)));
    new_file::check_absent(
        [perfetto, chrome, folded, flame].into_iter().flatten().cloned().chain(in_tables),
    )?;
    let mut capture = read(file)?;
    let groups = select.apply(&mut capture)?;
    let kineto_files = kineto.as_deref().map(|place| kineto::paths(&capture, place)).transpose()?;
    new_file::check_absent(kineto_files.iter().flatten().map(|(_, path)| path))?;
    // Drawn before anything is written, because there may be no stacks.
    let drawn = flame.as_ref().map(|_| python::flame(&capture)).transpose();
    let drawn = drawn.map_err(|error| UsageError::Value(format!("{}: {error}", file.display())))?;
    for &(place, of) in &tables {
        let source = Source { capture: &capture, clocks: &Clocks::of(&capture), groups };
        fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
        for sheet in &wanted {
            new_file::write(&sheet.path(place, of), |out| match of {
                "csv" => csv::write(sheet, &source, out),
                _ => parquet::write(sheet, &source, out),
            })?;
        }
    }
    // The requested kinds select operations only after the tables are written: tables are selected as a
    // whole, and the table of steps covers all kinds.
    if !kind.is_empty() {
        for of in capture.ranks.values_mut() {
            of.operations.retain(|single| kind.iter().any(|kind| kind.takes(single.kind())));
        }
    }
    if perfetto.is_some() || chrome.is_some() {
        let profiles = profile::read(&capture, file, traces.as_deref())?;
        let timeline = Timeline::with(&capture, groups, profiles);
        if let Some(path) = chrome {
            new_file::write(path, |out| {
                packed_by_name(path, out, |mut out| chrome::write(&timeline, &mut out))
            })?;
        }
        if let Some(path) = perfetto {
            new_file::write(path, |out| {
                packed_by_name(path, out, |mut out| perfetto::write(&timeline, &mut out))
            })?;
        }
    }
    if let Some(paths) = &kineto_files {
        kineto::write(&capture, paths)?;
    }
    if let Some(path) = folded {
        new_file::write(path, |out| Ok(folded::write(&capture, out)?))?;
    }
    if let (Some(path), Some(drawn)) = (flame, drawn) {
        new_file::write(path, |out| Ok(out.write_all(&drawn)?))?;
    }
    if capture.ranks.is_empty() {
        eprintln!("xpu-top: no rank could be read: the output is empty");
        return Ok(ExitCode::from(Code::NoData as u8));
    }
    Ok(ExitCode::SUCCESS)
}

/// Compressed if its name ends in .gz.
fn packed_by_name(
    path: &Path,
    out: &mut impl Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    if path.extension().is_none_or(|ending| ending != "gz") {
        return Ok(write(out)?);
    }
    let mut packed = GzEncoder::new(out, Compression::default());
    write(&mut packed)?;
    packed.finish()?;
    Ok(())
}
