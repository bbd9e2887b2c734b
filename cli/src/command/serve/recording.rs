//! The page of a recording: the part up to the shown moment goes to a collector, in a file in memory.

use std::{
    fs::File,
    io::{self, Seek as _},
    path::Path,
    process::ExitCode,
};

use xpu_client::{frame_cursor::FrameCursor, time};
use xpu_model::{figure, job::Jobs};
use xpu_recording::{Packer, Writer};
use xpu_wire::unit::Moment;

use super::{become_it, choose, collector, in_memory};
use crate::{
    args::ServeArgs,
    command::past,
    parts::{Part, Parts},
};

/// Of a larger recording, only what the shown moment needs is read: half a minute, or as much as is read quickly.
const LARGEST: u64 = 512 << 20;

/// Returns only if it fails.
pub(super) fn show(file: &Path, args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let (mut cursor, at) = past::opened(file, args.at.as_deref())?;
    if cursor.distance(at) > LARGEST {
        cursor.wind(at);
        let from = cursor.after(Moment(0))?.unwrap_or(at);
        eprintln!("xpu-top: the recording is large: the page has the last {}", time::span(at.since(from)));
    }
    let (program, base) = (Parts::beside_this_program()?.find(Part::Collector)?, choose(args.port)?);
    let mut server = collector(&program);
    server.args(["--recording", "/dev/stdin", "--recorded-at", &at.0.to_string(), "--recorded-in"]);
    server.arg(file.canonicalize()?).stdin(part(&mut cursor, at)?);
    cursor.complaints().iter().for_each(|text| eprintln!("xpu-top: {}: {text}", file.display()));
    eprintln!("xpu-top: {} at {}", file.display(), figure::clock(at));
    become_it(server, &program, base, args)
}

/// The frames from the cursor's position to this moment, with the details of all ranks.
fn part(cursor: &mut FrameCursor, to: Moment) -> io::Result<File> {
    let from = cursor.after(Moment(0))?.unwrap_or(to);
    let mut jobs = Jobs::default();
    while let Some((_, frame)) = cursor.next(to)? {
        jobs.fold(&frame);
    }
    let mut detailed = cursor.again();
    detailed.watch_ranks(jobs.iter().flat_map(|job| job.ranks().map(|(rank, _)| rank)).collect());
    if from > cursor.span().first {
        detailed.wind(to);
    }
    let mut writer = Writer::begin(in_memory()?, cursor.recording().header())?;
    let mut packer = Packer::default();
    while let Some((at, frame)) = detailed.next(to)? {
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
