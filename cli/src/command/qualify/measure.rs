//! The measurements of one host, in an order that avoids disturbance: all GPUs compute at once, then each GPU
//! copies to and from the host alone, then pairs copy, and then all work together.

use std::{
    sync::{
        Arc, Barrier,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Instant,
};

use nvml_wrapper::Nvml;
use xpu_analysis::qualify::{Gpu as Report, Host, Kind, Qualification};
use xpu_model::figure;
use xpu_model::peak::{Peaks, nvlink_gb_s};
use xpu_wire::id::DeviceUuid;

use super::{
    How,
    board::Board,
    condition::{self, Watch},
    copies::{self, Pinned},
    exchange, gemms, history, running,
    timing::Timing,
};
use crate::gpu::{
    device::{self, Gpu, OTHERS},
    library,
    nccl::{Nccl, Ranks},
};

/// Measures this host, and judges it with its own past runs, to which results of passing GPUs are added. Also
/// returns the GPUs for measurements with other hosts; `None` if they did not answer.
pub(super) fn here(how: &How) -> (Host, Option<Vec<Gpu>>) {
    let (host, gpus) = measure(how);
    let mut alone = Qualification { hosts: vec![host], quick: how.quick, ..Qualification::default() };
    alone.judge();
    let host = alone.hosts.remove(0);
    if !how.beside_job {
        history::keep(&host, how.quick);
    }
    (host, gpus)
}

fn measure(how: &How) -> (Host, Option<Vec<Gpu>>) {
    let begun = Instant::now();
    let host = Host {
        host: xpu_wire::endpoint::host_name().to_string(),
        beside_job: how.beside_job,
        ..Host::default()
    };
    let board = Arc::new(Board::new(host.clone(), begun));
    let (ends, ended) = mpsc::channel();
    let (for_thread, asked) = (Arc::clone(&board), how.clone());
    let spawned = thread::Builder::new().name("qualify".to_owned()).spawn(move || {
        let outcome = all(&for_thread, &asked);
        // The receiver is gone if the time was up.
        let _ = ends.send(outcome);
    });
    if let Err(error) = spawned {
        return (Host { not_run: Some(format!("no thread: {error}")), ..host }, None);
    }
    let outcome = wait(&board, &ended);
    let mut host = board.close();
    let gpus = match outcome {
        Some(Ok(gpus)) => Some(gpus),
        Some(Err(error)) => {
            host.not_run = Some(format!("{error:#}"));
            None
        }
        // Measurements that did not return are among the errors.
        None => None,
    };
    for gpu in &mut host.gpus {
        history::recall(gpu, how.quick);
    }
    (host, gpus)
}

/// Waits for the result; `None` if the time is up. The time limit grows with the number of GPUs, which is
/// known after the first calls.
fn wait<T>(board: &Board, ended: &mpsc::Receiver<T>) -> Option<T> {
    /// Time for the last measurement to end after it began.
    const LAST: std::time::Duration = std::time::Duration::from_secs(15);
    loop {
        let left = (board.deadline() + LAST).saturating_duration_since(Instant::now());
        match ended.recv_timeout(left) {
            Ok(outcome) => return Some(outcome),
            // The deadline may have moved while this waited for the earlier one.
            Err(RecvTimeoutError::Timeout) if Instant::now() < board.deadline() + LAST => {}
            Err(_) => return None,
        }
    }
}

fn all(board: &Board, how: &How) -> anyhow::Result<Vec<Gpu>> {
    library::open()?;
    let nvml = Nvml::init().ok().map(Arc::new);
    let uuids: Vec<_> = (0..device::count()?).map(device::uuid).collect();
    if !how.beside_job
        && let Some(why) = running::found(&how.connection, nvml.as_deref(), &uuids)
    {
        anyhow::bail!("{why}; end the job first, or measure beside it with --beside-job");
    }
    let peaks = std::env::var(Peaks::VARIABLE).ok();
    let peaks = peaks.map(|text| Peaks::parse(&text)).transpose().map_err(|what| anyhow::anyhow!(what))?;
    board.lock().gpus = (0..uuids.len() as u32).map(|index| Report { index, ..Report::default() }).collect();
    let mut gpus = prepare(board, &uuids, how)?;
    let timing = Timing::of(how.quick);
    let watch = nvml.as_ref().map(|nvml| Watch::begin(Arc::clone(nvml), uuids.clone()));
    thread::scope(|scope| {
        for (place, gpu) in gpus.iter_mut().enumerate() {
            let peaks = peaks.unwrap_or_default().or_of(gpu.name.as_deref().unwrap_or(""));
            scope.spawn(move || gemms::measure(gpu, place, board, timing, peaks));
        }
    });
    for (place, condition) in watch.iter().flat_map(Watch::seen).enumerate() {
        board.edit(place, |gpu| gpu.condition = condition);
    }
    drop(watch);
    with_host(&mut gpus, board, nvml.as_deref(), timing);
    set_peaks(board, nvml.as_deref(), &uuids);
    if gpus.len() > 1 {
        pairs(&mut gpus, board);
        board.host("all-reduce", || {
            let Some(nccl) = Nccl::open() else {
                board.lock().not_measured.push("all-reduce: no libnccl.so.2".to_owned());
                return Ok(());
            };
            let ranks = Ranks { first: 0, world: gpus.len() as u32 };
            let figure = exchange::all_reduce(nccl, &mut gpus, nccl.unique_id()?, ranks)?;
            let peak = gpus[0].name.as_deref().and_then(nvlink_gb_s);
            board.lock().all_reduce = figure.map(|figure| figure.with_peak(peak));
            Ok(())
        });
    }
    Ok(gpus)
}

/// Creates contexts, and allocates memory for the largest matrices.
fn prepare(board: &Board, uuids: &[Option<DeviceUuid>], how: &How) -> anyhow::Result<Vec<Gpu>> {
    let mut gpus = Vec::new();
    for (place, uuid) in uuids.iter().enumerate() {
        board.edit(place, |gpu| {
            gpu.uuid = uuid.map(|uuid| uuid.to_string());
            gpu.doing = Some("its start".to_owned());
        });
        let mut gpu = Gpu::open(place as i32).inspect_err(|error| {
            board.edit(place, |gpu| gpu.errors.push(format!("{error:#}")));
        })?;
        if gpu.held > OTHERS && !how.beside_job {
            anyhow::bail!(
                "{} of the memory of GPU {place} are in use; end the job first, or measure beside it with --beside-job",
                figure::bytes(gpu.held)
            );
        }
        if gpu.most < gemms::bytes() {
            anyhow::bail!("too little memory of GPU {place} is free");
        }
        gpu.reserve(gemms::bytes())?;
        board.edit(place, |report| {
            report.name.clone_from(&gpu.name);
            report.pci = gpu.bus_id();
            report.doing = None;
        });
        gpus.push(gpu);
    }
    Ok(gpus)
}

/// Copies of each GPU alone, then of all at once, from CPUs near the GPU. A separate thread runs them,
/// because only that thread is bound to these CPUs.
fn with_host(gpus: &mut [Gpu], board: &Board, nvml: Option<&Nvml>, timing: Timing) {
    let bind = |gpu: &Gpu| {
        let device = nvml.and_then(|nvml| condition::device(nvml, gpu.uuid));
        // If binding is not allowed, the thread runs on any CPU.
        let _ = device.map(|mut device| device.set_cpu_affinity());
    };
    let mut memory: Vec<Option<Pinned>> = Vec::new();
    for (place, gpu) in gpus.iter_mut().enumerate() {
        let alone = || {
            bind(gpu);
            let pinned = Pinned::of(gpu)
                .map_err(|why| board.edit(place, |gpu| gpu.errors.push(format!("pinned memory: {why}"))));
            let pinned = pinned.ok()?;
            for (kind, what) in [(Kind::ToGpu, "host to GPU"), (Kind::FromGpu, "GPU to host")] {
                board.gpu(place, what, || copies::host(gpu, pinned, kind, timing));
            }
            Some(pinned)
        };
        memory.push(thread::scope(|scope| scope.spawn(alone).join().ok().flatten()));
    }
    let ready: Vec<_> = gpus.iter_mut().enumerate().zip(memory).collect();
    let ready: Vec<_> = ready.into_iter().filter_map(|(gpu, pinned)| Some((gpu, pinned?))).collect();
    if ready.len() < 2 {
        return;
    }
    let barrier = Barrier::new(ready.len());
    thread::scope(|scope| {
        for ((place, gpu), pinned) in ready {
            let (barrier, bind) = (&barrier, &bind);
            scope.spawn(move || {
                bind(gpu);
                barrier.wait();
                board.gpu(place, "host to GPU, all at once", || {
                    copies::host(gpu, pinned, Kind::ToGpuTogether, timing)
                });
            });
        }
    });
}

/// Sets the peaks of memory and link from NVML.
fn set_peaks(board: &Board, nvml: Option<&Nvml>, uuids: &[Option<DeviceUuid>]) {
    for (place, &uuid) in uuids.iter().enumerate() {
        let Some(device) = nvml.and_then(|nvml| condition::device(nvml, uuid)) else { continue };
        let (memory, pcie) = (condition::memory_peak(&device), condition::pcie_peak(&device));
        board.edit(place, |gpu| {
            for figure in &mut gpu.figures {
                match figure.kind {
                    Kind::Memory => figure.peak = memory,
                    Kind::ToGpu | Kind::FromGpu => figure.peak = pcie,
                    _ => {}
                }
            }
        });
    }
}

/// Copies from every GPU to every other, one copy at a time.
fn pairs(gpus: &mut [Gpu], board: &Board) {
    for from in 0..gpus.len() {
        for to in 0..gpus.len() {
            let Ok([one, other]) = gpus.get_disjoint_mut([from, to]) else { continue };
            let peak = one.name.as_deref().and_then(nvlink_gb_s);
            board.host(&format!("GPU {from} to GPU {to}"), || {
                let pair = copies::peer(one, other, peak)?;
                board.lock().pairs.extend(pair);
                Ok(())
            });
        }
    }
}
