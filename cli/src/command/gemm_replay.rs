//! `xpu-top gemm-replay`: runs the GEMMs of a capture again, one by one, on a GPU of this machine.

mod alone;
mod text;

use std::process::ExitCode;

use serde::Serialize;
use xpu_analysis::capture::{ShapeGemms, Standalone};
use xpu_model::status::ExitCode as Code;
use xpu_wire::id::JobName;

use super::{output::print_document, report::read};
use crate::{
    args::GemmReplayArgs,
    gpu::{gemm::Gemm, library},
};

#[derive(Debug, Serialize)]
struct Document {
    job: JobName,
    gpu: On,
    #[serde(flatten)]
    standalone: Standalone,
}

#[derive(Debug, Serialize)]
struct On {
    device: u32,
    name: Option<String>,
    /// The version of cuBLAS: `13.0.0`.
    cublas: String,
}

pub fn gemm_replay(args: &GemmReplayArgs) -> anyhow::Result<ExitCode> {
    let mut capture = read(&args.file)?;
    args.select.apply(&mut capture)?;
    let all = ShapeGemms::of(&capture);
    let timed = all.iter().filter(|gemms| gemms.took.timed > 0).count();
    if timed == 0 {
        eprintln!("xpu-top: nothing to replay: no completely recorded step or window has a timed GEMM");
        return Ok(ExitCode::from(Code::NoData as u8));
    }
    let chosen = |place: usize| match place {
        _ if place >= timed => Err("its time in the capture is unknown".to_owned()),
        _ if place >= args.top => Err(format!("it is not among the {} costliest (--top)", args.top)),
        _ => Gemm::of(&all[place].shape),
    };
    let gemms: Vec<_> = (0..all.len()).map(chosen).collect();
    let asked: Vec<_> = gemms.iter().flatten().copied().collect();
    if asked.is_empty() {
        eprintln!("xpu-top: nothing to replay: {}", gemms[0].as_ref().err().map_or("", String::as_str));
        return Ok(ExitCode::from(Code::NoData as u8));
    }
    library::open()?;
    let mut gpu = alone::open(args.device, args.shared, &asked)?;
    let alone: Vec<_> =
        gemms.into_iter().map(|gemm| alone::time(&mut gpu, &gemm?, args.iterations)).collect();
    let standalone = Standalone::of(&capture, &all, &alone);
    let job = capture.sheet.map(|sheet| sheet.job).unwrap_or_default();
    let cublas = format!("{}.{}.{}", gpu.cublas / 10_000, gpu.cublas / 100 % 100, gpu.cublas % 100);
    let document =
        Document { job, gpu: On { device: args.device, name: gpu.name.clone(), cublas }, standalone };
    let replayed = alone.iter().any(Result::is_ok);
    print_document(&document, args.json, || text::text(&document, args.top))?;
    Ok(ExitCode::from(if replayed { 0 } else { Code::NoData as u8 }))
}
