//! The health of the simulated cluster's GPUs: busy, warm and without errors.

use super::Simulation;
use xpu_wire::{
    frame::{DeviceReading, Throttle},
    id::{DeviceUuid, Rank},
    sampling,
};

impl Simulation {
    pub(super) fn device(&self, rank: Rank, seconds: u64) -> DeviceReading {
        let wave = |number| self.noise(rank, number ^ seconds << 8);
        DeviceReading {
            utilisation: Some(97 + (3.0 * wave(2)) as u8),
            sm_clock: Some(1755 + 15 * (4.0 * wave(3)) as u32),
            sm_clock_max: Some(1980),
            memory_clock: Some(3201),
            memory_clock_max: Some(3201),
            throttle: Some(Throttle(0)),
            power: Some(640_000 + (30_000.0 * wave(4)) as u32),
            power_limit: Some(700_000),
            temperature: Some(58 + (10.0 * self.noise(rank, 5)) as u32),
            memory_used: Some(71_000_000_000 + (1e9 * self.noise(rank, 6)) as u64),
            memory_total: Some(150_754_820_096),
            ecc_corrected: Some(0),
            ecc_uncorrected: Some(0),
            nvlink_errors: Some(0),
            xids: Some(0),
            ..DeviceReading::unknown(self.uuid(rank), self.at(seconds))
        }
    }

    fn uuid(&self, rank: Rank) -> DeviceUuid {
        let (high, low) = (sampling::priority(self.seed), sampling::priority(u64::from(rank.0)));
        DeviceUuid(((u128::from(high) << 64) | u128::from(low)).to_be_bytes())
    }
}
