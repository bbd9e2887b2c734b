//! Checks whether another process uses the GPUs: both would slow down, and the figures would not show what
//! the GPU can do.

use std::{thread, time::Duration};

use nvml_wrapper::{Device, Nvml};
use tokio::time::Instant;
use xpu_client::{follow::Following, live};
use xpu_model::{hosts::Hosts, job::Job};
use xpu_wire::{
    endpoint::{self, RuntimeDir},
    id::DeviceUuid,
};

use super::condition::device;
use crate::{
    args::ConnectionArgs,
    command::living::{LOOK, take_until},
};

/// Percent of time; less is noise.
const BUSY: u32 = 10;

/// How long a process that has just ended may still show in the driver's utilisation of the last second.
const FADES: Duration = Duration::from_secs(3);

/// The reason not to measure; `None` if no other use of these GPUs is known.
pub(super) fn found(
    connection: &ConnectionArgs,
    nvml: Option<&Nvml>,
    gpus: &[Option<DeviceUuid>],
) -> Option<String> {
    if let Some(ranks) = ranks_here(connection) {
        return Some(ranks);
    }
    let nvml = nvml?;
    gpus.iter().enumerate().find_map(|(place, &uuid)| {
        let device = device(nvml, uuid)?;
        let processes = others(&device);
        if !processes.is_empty() {
            let numbers: Vec<_> = processes.iter().map(ToString::to_string).collect();
            return Some(format!("GPU {place} is used by process {}", numbers.join(", ")));
        }
        // A container hides processes of others, but not their load.
        let busy = busy_for_long(&device)?;
        Some(format!("GPU {place} is {busy} % busy by a process that cannot be seen here"))
    })
}

fn others(device: &Device<'_>) -> Vec<u32> {
    let own = std::process::id();
    let all = device.running_compute_processes().unwrap_or_default();
    all.into_iter().map(|process| process.pid).filter(|&pid| pid != own).collect()
}

fn busy_for_long(device: &Device<'_>) -> Option<u32> {
    let begun = std::time::Instant::now();
    loop {
        let busy = device.utilization_rates().ok()?.gpu;
        if busy < BUSY {
            return None;
        }
        if begun.elapsed() >= FADES {
            return Some(busy);
        }
        thread::sleep(FADES / 20);
    }
}

/// Ranks that this host's collector knows and that live.
fn ranks_here(connection: &ConnectionArgs) -> Option<String> {
    let base = connection.base().ok()?;
    let socket = RuntimeDir::locate().socket(base).ok()?;
    endpoint::connect(&socket).ok()?;
    let hosts = Hosts::here(base);
    let mut following = Following::new(hosts.endpoints.iter().cloned(), None);
    let (_live, mut arrivals) = live::connect(hosts.endpoints, connection.key().ok().flatten(), None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().ok()?;
    runtime.block_on(take_until(
        &mut following,
        &mut arrivals,
        Instant::now() + LOOK,
        Following::is_complete,
    ));
    let job = following.jobs().iter().find(|job: &&Job| job.living() > 0)?;
    Some(format!(
        "job {} runs here, with {}",
        job.name(),
        xpu_model::figure::counted(job.living(), "rank", "ranks")
    ))
}
