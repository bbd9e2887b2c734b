//! `xpu-top export`: a capture in the forms that other programs read.

mod chrome;
mod counter;
mod csv;
mod folded;
mod parquet;
mod perfetto;
mod sheet;
mod timeline;
mod words;

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use xpu_shared::{
    capture::{Capture, Clocks},
    status::ExitCode as Code,
};

use super::{record::fresh, report::read};
use crate::args::{ExportArgs, UsageError};
use sheet::{SHEETS, Sheet, Source};
use timeline::Timeline;

pub fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let ExportArgs { file, perfetto, chrome, csv, parquet, folded, select } = args;
    if [perfetto, chrome, csv, parquet, folded].iter().all(|out| out.is_none()) {
        let forms = "say what to write: --perfetto, --chrome or --folded FILE, --csv or --parquet DIR";
        return Err(UsageError::Value(forms.to_owned()).into());
    }
    let mut capture = read(file)?;
    let groups = select.apply(&mut capture)?;
    if perfetto.is_some() || chrome.is_some() {
        let timeline = Timeline::of(&capture);
        if let Some(path) = chrome {
            write_to(path, |out| Ok(chrome::write(&timeline, out)?))?;
        }
        if let Some(path) = perfetto {
            write_to(path, |out| Ok(perfetto::write(&timeline, out)?))?;
        }
    }
    if let Some(path) = folded {
        write_to(path, |out| Ok(folded::write(&capture, out)?))?;
    }
    let source = Source { capture: &capture, clocks: &Clocks::of(&capture), groups };
    if let Some(place) = csv {
        sheets(place, "csv", |sheet, out| csv::write(sheet, &source, out))?;
    }
    if let Some(place) = parquet {
        sheets(place, "parquet", |sheet, out| parquet::write(sheet, &source, out))?;
    }
    if capture.ranks.is_empty() {
        eprintln!("xpu-top: of no rank anything could be read: what was written is empty");
        return Ok(ExitCode::from(Code::NoData as u8));
    }
    Ok(ExitCode::SUCCESS)
}

/// A capture's timeline as Perfetto reads it.
pub(crate) fn perfetto_of(capture: &Capture, out: &mut impl Write) -> anyhow::Result<()> {
    Ok(perfetto::write(&Timeline::of(capture), out)?)
}

/// A file for each table, in a directory that is made if it is not there.
fn sheets(
    place: &Path,
    kind: &str,
    write: impl Fn(&Sheet, &mut BufWriter<File>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
    SHEETS.iter().try_for_each(|sheet| {
        write_to(&place.join(format!("{}.{kind}", sheet.name)), |out| write(sheet, out))
    })
}

fn write_to(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let mut out = BufWriter::new(fresh(path)?);
    let written = write(&mut out).and_then(|()| Ok(out.flush()?));
    if written.is_err() {
        // A piece of it would only be in the way of the next try.
        let _ = fs::remove_file(path);
    }
    written.with_context(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_is_written_over_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link, other] = ["out", "link", "other"].map(|name| dir.path().join(name));
        let write = |path: &Path| write_to(path, |out| Ok(out.write_all(b"new")?));
        write(&file).unwrap();
        assert!(write(&file).unwrap_err().to_string().contains("write to another file"));
        fs::write(&other, "theirs").unwrap();
        symlink(&other, &link).unwrap();
        assert!(write(&link).is_err() && fs::read(&other).unwrap() == b"theirs");
    }

    #[test]
    fn what_could_not_be_written_whole_is_not_in_the_way_of_the_next_try() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("out");
        assert!(write_to(&file, |_| anyhow::bail!("no room")).is_err());
        assert!(!file.exists());
        write_to(&file, |_| Ok(())).unwrap();
    }
}
