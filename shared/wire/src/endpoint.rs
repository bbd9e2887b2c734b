//! Ports, the runtime directory, and the socket of this host's collector.

mod runtime_dir;
mod trust;

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

pub use runtime_dir::{Located, RuntimeDir, RuntimeDirError};
pub use trust::{Foreign, connect, is_trusted_socket, peer_user};

/// The three ports of a collector, named by the lowest.
///
/// base (18889): HTTP; base + 1 (18890): data, PUB; base + 2 (18891): control, ROUTER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BasePort(pub u16);

impl BasePort {
    pub const DEFAULT: Self = Self(18889);
    /// Sets the base port for child processes.
    pub const VARIABLE: &str = "XPU_TOP_BASE_PORT";

    /// `None` if the three ports would not all exist.
    pub fn new(port: u16) -> Option<Self> {
        (port > 0 && port < u16::MAX - 1).then_some(Self(port))
    }

    pub fn http(self) -> u16 {
        self.0
    }

    pub fn data(self) -> u16 {
        self.0 + 1
    }

    pub fn control(self) -> u16 {
        self.0 + 2
    }
}

impl Default for BasePort {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A collector as the hosts file names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    #[serde(deserialize_with = "crate::text::line")]
    pub host: String,
    pub base: BasePort,
    /// The user's ssh, if the collector is reached through it.
    #[serde(skip)]
    pub ssh: Option<Ssh>,
}

/// The user's ssh command with its options before the host: `ssh -p 2222`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ssh(pub Arc<str>);

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.base == BasePort::DEFAULT {
            f.write_str(&self.host)
        } else {
            write!(f, "{}:{}", self.host, self.base.0)
        }
    }
}

/// Variables with which `xpu-top run` configures the hook.
pub mod variable {
    /// Name of the job.
    pub const JOB: &str = "XPU_TOP_JOB";
    /// Variables in which a launcher sets a process's place in its job.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Launcher {
        pub rank: &'static str,
        pub world_size: &'static str,
        pub local_rank: &'static str,
    }

    /// The first launcher whose rank variable is set is used. Inner launchers come first, because Slurm also
    /// sets its variables in the shell, and on the hosts, where torchrun or mpirun starts the ranks.
    pub const LAUNCHERS: [Launcher; 9] = [
        launcher("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        launcher("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
        launcher("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
        launcher("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK"),
        launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
        launcher("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"),
        launcher("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
        launcher("PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK"),
    ];

    const fn launcher(rank: &'static str, world_size: &'static str, local_rank: &'static str) -> Launcher {
        Launcher { rank, world_size, local_rank }
    }
    /// Path of the socket of this host's collector.
    pub const SOCKET: &str = "XPU_TOP_SOCKET";
    /// Directory for sockets and locks, instead of the usual one.
    pub const RUNTIME_DIR: &str = "XPU_TOP_RUNTIME_DIR";
    /// `1`: the hook does nothing.
    pub const DISABLE: &str = "XPU_TOP_DISABLE";
    /// `0`: functions looked up by address (`dlsym`) are not interposed.
    pub const DLSYM: &str = "XPU_TOP_DLSYM";
    /// `0`: NCCL's profiler plugin interface is not used.
    pub const PLUGIN: &str = "XPU_TOP_PLUGIN";
    /// Share of wall time that timing may take, in percent; `off` for no limit.
    pub const BUDGET: &str = "XPU_TOP_BUDGET";
    /// Sampling rates regardless of their cost, for example `gemm=16,collective=8` (one in 16, one in 8;
    /// powers of two).
    pub const SAMPLE: &str = "XPU_TOP_SAMPLE";
    /// Kernels to count and time by name, for example `flash_fwd:attn*bwd`.
    pub const KERNELS: &str = "XPU_TOP_KERNELS";
    /// The only source of step ends: `marked`, `optimizer` or `detected`; `off` for none. By default the
    /// first of these that reports steps.
    pub const STEPS: &str = "XPU_TOP_STEPS";
    /// Python functions that captures record, for example `train@Trainer@step,collate`.
    pub const FUNCTIONS: &str = "XPU_TOP_TRACE_FUNCS";
    /// xpu-timer's variable for the same, read if the one above is not set.
    pub const FUNCTIONS_OF_XPU_TIMER: &str = "XPU_TIMER_HOST_TRACING_FUNC";
    /// `1`: the hook records these functions all the time, so that a capture also has the steps before it.
    pub const FUNCTIONS_ALWAYS: &str = "XPU_TOP_TRACE_FUNCS_ALWAYS";
    /// `1`: captures of all kernels (`--kernels`) may switch CUPTI on in this process.
    pub const CUPTI: &str = "XPU_TOP_CUPTI";
    /// `0`: no signal handlers and no Python exception hook. Only the collector then observes a rank's end.
    pub const EXIT_REPORTS: &str = "XPU_TOP_EXIT_REPORTS";
    /// Python files that are called at every rank's end, separated by commas.
    pub const EXIT_PLUGIN: &str = "XPU_TOP_EXIT_PLUGIN";
    /// xpu-timer's variable for the same.
    pub const EXIT_PLUGIN_OF_XPU_TIMER: &str = "XPU_TIMER_EXIT_HOOK_PLUGIN";
    /// Command line that runs once for a hang, and once for each rank that fails.
    pub const ON_HANG: &str = "XPU_TOP_ON_HANG";
    /// The hosts of the job, as a list or as a file: if it hangs, the collector that runs this command asks
    /// those of the other hosts. Slurm's list of the job's hosts is used if it is not set.
    pub const JOB_HOSTS: &str = "XPU_TOP_JOB_HOSTS";
    pub const HOSTS_OF_SLURM: &str = "SLURM_JOB_NODELIST";
    /// [`GPU_CORE_ON_HANG`]: when a job hangs, the collector itself reads the kernels on its GPUs, which ends
    /// the ranks.
    pub const GPU_CORE: &str = "XPU_TOP_GPU_CORE";
    pub const GPU_CORE_ON_HANG: &str = "on-hang";
    /// File with the key that encrypts data and control.
    pub const KEY_FILE: &str = "XPU_TOP_KEY_FILE";
}

/// The effective user of this process.
pub fn user_id() -> u32 {
    // SAFETY: geteuid has no precondition and cannot fail (POSIX).
    unsafe { libc::geteuid() }
}

/// This host's name from the kernel, up to the first dot.
pub fn host_name() -> crate::id::HostName {
    let mut buffer = [0_u8; 256];
    // SAFETY: the pointer and length describe `buffer`, which outlives the call.
    let rc = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len()) };
    let text = if rc == 0 { &buffer[..buffer.iter().position(|&b| b == 0).unwrap_or(0)] } else { &[] };
    let name = String::from_utf8_lossy(text);
    let short = name.split('.').next().unwrap_or_default();
    crate::id::HostName(if short.is_empty() { "localhost".to_owned() } else { short.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_follow_the_base() {
        let base = BasePort::DEFAULT;
        assert_eq!((base.http(), base.data(), base.control()), (18889, 18890, 18891));
        assert_eq!(BasePort::new(65534), None);
        assert_eq!(BasePort::new(0), None);
    }
}
