//! Numbers from the environment, each read once, at its first use.

use std::io::Write;
use std::ops::RangeInclusive;

/// A setting of the simulated machine. `simgpu/README.md` lists them all.
#[derive(Clone, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub default: f64,
    pub range: RangeInclusive<f64>,
}

impl Setting {
    /// The value. An invalid one gives the default, and a line on stderr that says what is wrong.
    #[must_use]
    pub fn read(&self) -> f64 {
        let Some(text) = std::env::var_os(self.name) else { return self.default };
        let text = text.to_string_lossy();
        self.parse(&text).unwrap_or_else(|| {
            // A closed stderr is no reason to fail.
            let _ = writeln!(
                std::io::stderr(),
                "simgpu: {}={text:?} is not a number from {} to {}: taking {}",
                self.name,
                self.range.start(),
                self.range.end(),
                self.default
            );
            self.default
        })
    }

    fn parse(&self, text: &str) -> Option<f64> {
        text.trim().parse().ok().filter(|value| self.range.contains(value))
    }
}

pub const TFLOPS: Setting = Setting { name: "SIMGPU_TFLOPS", default: 500.0, range: 1e-3..=1e6 };
pub const SLOWDOWN: Setting = Setting { name: "SIMGPU_SLOWDOWN", default: 1.0, range: 1e-3..=1e6 };
/// The clock of the GPU. GEMMs and kernels take longer at a lower clock.
pub const CLOCK_MHZ: Setting = Setting {
    name: "SIMGPU_CLOCK_MHZ",
    default: crate::gauge::HIGHEST_MHZ,
    range: 1.0..=crate::gauge::HIGHEST_MHZ,
};
pub const KERNEL_US: Setting = Setting { name: "SIMGPU_KERNEL_US", default: 5.0, range: 0.0..=1e9 };
pub const MEMCPY_GB_S: Setting = Setting { name: "SIMGPU_MEMCPY_GB_S", default: 25.0, range: 1e-6..=1e6 };
/// The memory bandwidth for copies within a GPU (bytes read plus bytes written), and the bandwidth from one
/// GPU to another.
pub const MEMORY_GB_S: Setting = Setting { name: "SIMGPU_MEMORY_GB_S", default: 4000.0, range: 1e-6..=1e6 };
pub const NVLINK_GB_S: Setting = Setting { name: "SIMGPU_NVLINK_GB_S", default: 300.0, range: 1e-6..=1e6 };
/// The memory of a device that programs outside the simulation hold.
pub const FOREIGN_MIB: Setting = Setting { name: "SIMGPU_FOREIGN_MIB", default: 0.0, range: 0.0..=1e6 };
/// The memory that a communicator takes on its device.
pub const NCCL_MIB: Setting = Setting { name: "SIMGPU_NCCL_MIB", default: 0.0, range: 0.0..=1e6 };
pub const DEVICES: Setting = Setting { name: "SIMGPU_DEVICES", default: 8.0, range: 0.0..=1024.0 };
pub const BUS_GB_S: Setting = Setting { name: "SIMGPU_BUS_GB_S", default: 150.0, range: 1e-6..=1e6 };
/// In the form of `ncclGetVersion`.
pub const NCCL_VERSION: Setting =
    Setting { name: "SIMGPU_NCCL_VERSION", default: 22809.0, range: 21800.0..=23399.0 };
pub const INIT_TIMEOUT_S: Setting =
    Setting { name: "SIMGPU_INIT_TIMEOUT_S", default: 120.0, range: 0.0..=1e6 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_range_is_taken_and_anything_else_is_not() {
        assert_eq!(TFLOPS.parse(" 312.5 "), Some(312.5));
        for wrong in ["", "fast", "0", "-1", "nan", "inf", "1e9"] {
            assert_eq!(TFLOPS.parse(wrong), None, "{wrong}");
        }
    }
}
