//! `xpu-top export`: a capture in the forms that other programs draw.

mod chrome;
mod perfetto;
mod timeline;
mod words;

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;

use super::report::read;
use crate::args::{ExportArgs, UsageError};
use timeline::Timeline;

pub fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    if args.chrome.is_none() && args.perfetto.is_none() {
        return Err(
            UsageError::Value("say what to write: --perfetto FILE or --chrome FILE".to_owned()).into()
        );
    }
    let capture = read(&args.file)?;
    let timeline = Timeline::of(&capture);
    if let Some(path) = &args.chrome {
        write_to(path, |out| chrome::write(&timeline, out))?;
    }
    if let Some(path) = &args.perfetto {
        write_to(path, |out| perfetto::write(&timeline, out))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write_to(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let mut out = BufWriter::new(File::create(path).with_context(failed)?);
    write(&mut out).and_then(|()| out.flush()).with_context(failed)
}
