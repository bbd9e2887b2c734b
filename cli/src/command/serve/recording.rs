//! The page of a recording: a collector reads and plays the file. It gets the folder of a hang as one
//! recording, in a file in memory.

use std::{
    fs::File,
    io::{self, Seek as _},
    path::Path,
    process::ExitCode,
};

use xpu_model::{figure, job::Jobs};
use xpu_recording::{FrameCursor, Packer, Writer};
use xpu_wire::unit::Moment;

use super::{choose, collector, exec, in_memory};
use crate::{
    args::ServeArgs,
    command::past,
    parts::{Part, Parts},
};

/// Returns only if it fails.
pub(super) fn show(file: &Path, args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let (cursor, at) = past::opened(file, args.at.as_deref())?;
    let (program, base) = (Parts::beside_this_program()?.find(Part::Collector)?, choose(args.port)?);
    let mut server = collector(&program);
    let place = file.canonicalize()?;
    server.args(["--recorded-at", &at.0.to_string(), "--recorded-in"]).arg(&place).arg("--recording");
    if file.is_dir() {
        server.arg("/dev/stdin").stdin(copy(cursor)?);
    } else {
        cursor.complaints().iter().for_each(|text| eprintln!("xpu-top: {}: {text}", file.display()));
        server.arg(&place);
    }
    eprintln!("xpu-top: {} at {}", file.display(), figure::clock(at));
    exec(server, &program, base, args)
}

/// All frames, with the details of all ranks.
fn copy(mut cursor: FrameCursor) -> io::Result<File> {
    let mut jobs = Jobs::default();
    let end = Moment(u64::MAX);
    while let Some((_, frame)) = cursor.next(end)? {
        jobs.fold(&frame);
    }
    let mut detailed = cursor.again();
    detailed.watch_ranks(jobs.iter().flat_map(|job| job.ranks().map(|(rank, _)| rank)).collect());
    let mut writer = Writer::begin(in_memory()?, cursor.recording().header())?;
    let mut packer = Packer::default();
    while let Some((at, frame)) = detailed.next(end)? {
        if let Some(block) = packer.push(at, &frame)? {
            writer.write(&block)?;
        }
    }
    for block in packer.rest()? {
        writer.write(&block)?;
    }
    let (mut file, _) = writer.finish()?;
    file.rewind()?;
    Ok(file)
}
