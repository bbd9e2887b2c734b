//! The simulated machine: its devices, their names, and the folder in which they can be observed.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::settings;

/// The folder that represents the machine. Without it, only the processes themselves see its GPUs.
pub const FOLDER: &str = "SIMGPU_MACHINE_DIR";

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The folder in which devices can be observed.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    env::var_os(FOLDER).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// The number of devices of the machine.
#[must_use]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the setting's range is 0 to 1024"
)]
pub fn devices() -> u32 {
    settings::DEVICES.read() as u32
}

/// The machine's devices that this process may use, in the order of their numbers in the process.
#[must_use]
pub fn visible() -> Vec<u32> {
    match env::var(VISIBLE) {
        Ok(list) => chosen(&list, devices()),
        Err(_) => (0..devices()).collect(),
    }
}

/// Reads the list as CUDA does: numbers from the first invalid one on are ignored.
fn chosen(list: &str, devices: u32) -> Vec<u32> {
    let numbers = list.split(',').map_while(|word| word.trim().parse().ok());
    numbers.take_while(|number| *number < devices).collect()
}

/// How many times longer work takes on each visible device, from the files `slow-<number>`.
#[must_use]
pub fn slowness() -> Vec<f64> {
    let folder = folder();
    let factor = |device: u32| {
        let file = folder.as_ref()?.join(format!("slow-{device}"));
        std::fs::read_to_string(file).ok()?.trim().parse::<f64>().ok().filter(|factor| *factor > 0.0)
    };
    visible().into_iter().map(|device| factor(device).unwrap_or(1.0)).collect()
}

/// The UUID of a device. The devices of another machine have other UUIDs.
#[must_use]
pub fn uuid(device: u32) -> [u8; 16] {
    let name = env::var_os(FOLDER).unwrap_or_else(|| OsString::from("simgpu"));
    // FNV-1a, which gives the same number in every process.
    let hash = name.as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&hash.to_be_bytes());
    uuid[8..12].copy_from_slice(b"sim\0");
    uuid[12..].copy_from_slice(&device.to_be_bytes());
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_chosen_as_cuda_chooses_them() {
        assert_eq!(chosen("3, 1", 8), [3, 1]);
        assert_eq!(chosen("0,9,1", 8), [0]);
        assert_eq!(chosen("1,-1,2", 8), [1]);
        assert_eq!(chosen("", 8), Vec::<u32>::new());
    }
}
