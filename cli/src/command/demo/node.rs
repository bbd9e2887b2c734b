//! A simulated host: a collector at its own address.

use std::{
    fs,
    net::Ipv4Addr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use xpu_wire::endpoint::{BasePort, RuntimeDir};

use super::{child::Child, folder::DemoFolder, port};

/// Time limit for a collector to start; a loaded machine starts many at once.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct Node {
    child: std::cell::RefCell<Child>,
    address: Ipv4Addr,
    socket: PathBuf,
}

impl Node {
    pub(super) fn start(
        folder: &DemoFolder,
        node: u32,
        base: BasePort,
        devices: u32,
    ) -> anyhow::Result<Self> {
        let runtime = folder.runtime(node);
        let address = port::address(node);
        let machine = folder.machine(node);
        fs::create_dir_all(&machine).with_context(|| format!("cannot make {}", machine.display()))?;
        let mut command = Command::new(&folder.collector);
        command
            .env("LD_LIBRARY_PATH", folder.libraries())
            .env("SIMGPU_MACHINE_DIR", machine)
            .env("SIMGPU_DEVICES", devices.to_string())
            // PyTorch's profiler on this host must stay available to real jobs.
            .env("XPU_TOP_KINETO_SOCKET", "off")
            .arg(format!("--bind={address}"))
            .arg(format!("--base-port={}", base.0))
            .arg(format!("--host-name=node-{}", node + 1))
            .args(["--idle-exit=0", "--no-runs", "--no-hangs"])
            .arg("--runtime-dir")
            .arg(&runtime);
        let socket = RuntimeDir::at(runtime).socket(base)?;
        let log = folder.logs().join(format!("node-{}", node + 1));
        let child = Child::start(&mut command, log).context("cannot start a collector")?.into();
        Ok(Self { child, address, socket })
    }

    pub(super) fn wait_until_ready(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(&self.socket).is_err() {
            let mut child = self.child.borrow_mut();
            if child.ended().is_some() || Instant::now() >= deadline {
                bail!("the collector of {} does not serve: {}", self.address, child.stderr_tail());
            }
            drop(child);
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        self.address
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }
}
