//! The simulated job of `xpu-top demo`.

mod fault;

use std::path::PathBuf;

use clap::Args;
pub use fault::{Faults, Hang, MoreLayers, SlowGpu, SlowHost, Throttle};
use xpu_wire::endpoint::BasePort;

use super::{LookArgs, PricedArgs, parse::base_port};

/// The options of the screen. Without a screen they are refused.
const OF_SCREEN: [&str; 6] = ["theme", "color", "ascii", "reduced_motion", "config", "gpu_hour_price"];

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Ranks of the job
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub ranks: u32,
    /// Simulated hosts over which the ranks are spread
    #[arg(long, value_name = "H", default_value_t = 2)]
    pub nodes: u32,
    /// Stages of a pipeline; its replicas share the ranks
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub stages: u32,
    /// Steps to train [default: 40 with --headless, else endless]
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Seed of the random numbers
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// Make the GPU of a rank slower by this factor: `6:1.3`
    #[arg(long, value_name = "RANK:FACTOR")]
    pub slow: Vec<SlowGpu>,
    /// Hold the clock of a rank's GPU down to this many MHz: `2:1275`
    #[arg(long, value_name = "RANK:MHz")]
    pub throttle: Vec<Throttle>,
    /// Delay the data loader of a rank by this time in each step: `3:40ms`
    #[arg(long, value_name = "RANK:TIME")]
    pub slow_host: Vec<SlowHost>,
    /// With --stages: give a stage this many more layers than the others have: `3:2`
    #[arg(long, value_name = "STAGE:LAYERS")]
    pub more_layers: Vec<MoreLayers>,
    /// With --stages: train on microbatches of different lengths
    #[arg(long)]
    pub long_sequences: bool,
    /// Hang a rank at this step: `25:3`
    #[arg(long, value_name = "STEP:RANK")]
    pub hang: Option<Hang>,
    /// Without a screen: run to the end and print the status
    #[arg(long, conflicts_with_all = OF_SCREEN)]
    pub headless: bool,
    /// With --headless: leave a hung job running until Ctrl-C, so that other terminals can watch it
    #[arg(long)]
    pub stay: bool,
    /// Print the status as JSON, without a screen
    #[arg(long, conflicts_with_all = OF_SCREEN)]
    pub json: bool,
    /// Without a screen: write the stacks of all ranks as a flame graph, if the job hangs
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_SCREEN)]
    pub svg: Option<PathBuf>,
    /// First of the collectors' three ports [default: 18889, or the next that is free]
    #[arg(long, value_name = "PORT", value_parser = base_port)]
    pub base_port: Option<BasePort>,
    #[command(flatten)]
    pub look: LookArgs,
    #[command(flatten)]
    pub priced: PricedArgs,
}
