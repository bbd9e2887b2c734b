//! `xpu-top demo`: a simulated job on this machine, monitored by the real hook, collectors and screen.
//!
//! Only the GPU is simulated: stand-in CUDA libraries compute durations. Measurements take the same path as
//! on a cluster.

mod child;
mod folder;
mod headless;
mod node;
mod port;
mod rank;

use std::{io::IsTerminal as _, process::ExitCode};

use folder::DemoFolder;
use node::Node;
use rank::Worker;
use xpu_client::{
    arrival::Endpoint,
    live, new_file,
    screen_capture::{Capturer, Targets},
};
use xpu_net::key::Key;
use xpu_tui::{
    config::Config,
    watch::{WatchOptions, watch},
};
use xpu_wire::endpoint::BasePort;

use crate::{
    args::{
        DemoArgs, UsageError,
        demo::{Faults, MoreLayers},
    },
    parts::Parts,
};

/// Steps of a demo without a screen.
const HEADLESS_STEPS: u64 = 40;

/// Largest number of ranks: more would only load this machine.
const MOST_RANKS: u32 = 1024;

/// Largest number of simulated hosts; each takes an address of 127.0.0.0/24.
const MOST_NODES: u32 = 250;

/// The checked parameters of a demo.
#[derive(Debug)]
struct Plan {
    ranks: u32,
    nodes: u32,
    /// 0 means endless.
    steps: u64,
    seed: u64,
    stages: u32,
    more_layers: Vec<MoreLayers>,
    long_sequences: bool,
    faults: Faults,
    /// Whether a hung job is left running.
    stays: bool,
}

/// GPUs of a usual node.
const DEVICES: u32 = 8;

impl Plan {
    /// The GPUs of a node: one for each of its ranks.
    fn devices(&self) -> u32 {
        self.ranks.div_ceil(self.nodes.max(1)).max(DEVICES)
    }

    /// The layers that a rank has in addition, because of its stage.
    fn more_layers(&self, rank: u32) -> u32 {
        let stage = rank / (self.ranks / self.stages.max(1)).max(1);
        self.more_layers.iter().rev().find(|more| more.stage == stage).map_or(0, |more| more.layers)
    }
}

impl DemoArgs {
    fn is_headless(&self) -> bool {
        let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        self.headless || self.json || self.svg.is_some() || !terminal
    }

    fn plan(&self) -> Result<Plan, UsageError> {
        let usage = |text: String| Err(UsageError::Value(text));
        let Self { ranks, nodes, seed, stages, long_sequences, .. } = *self;
        if !(1..=MOST_RANKS).contains(&ranks) {
            return usage(format!("--ranks {ranks}: write 1 to {MOST_RANKS}"));
        }
        let most = ranks.min(MOST_NODES);
        if !(1..=most).contains(&nodes) {
            return usage(format!("--nodes {nodes}: write 1 to {most} for {ranks} ranks"));
        }
        if stages == 0 || ranks % stages != 0 {
            return usage(format!("--stages {stages}: write a divisor of {ranks}, the number of ranks"));
        }
        if stages == 1 && (long_sequences || !self.more_layers.is_empty()) {
            return usage("--more-layers and --long-sequences are for a pipeline: add --stages 4".to_owned());
        }
        if let Some(more) = self.more_layers.iter().find(|more| more.stage >= stages) {
            let (stage, last) = (more.stage, stages - 1);
            return usage(format!(
                "--more-layers: there is no stage {stage}; this demo has stages 0 to {last}"
            ));
        }
        if self.stay && !self.is_headless() {
            return usage("--stay is for a demo without a screen: add --headless".to_owned());
        }
        if self.steps == Some(0) {
            return usage("--steps 0: write at least 1, or leave it out".to_owned());
        }
        let steps = self.steps.unwrap_or_else(|| if self.is_headless() { HEADLESS_STEPS } else { 0 });
        let faults = Faults::new(&self.slow, &self.throttle, &self.slow_host, self.hang, ranks, steps)
            .map_err(UsageError::Value)?;
        let more_layers = self.more_layers.clone();
        Ok(Plan { ranks, nodes, steps, seed, stages, more_layers, long_sequences, faults, stays: self.stay })
    }
}

/// All processes. Ranks are dropped first, while collectors can still receive their goodbye.
struct Processes {
    workers: Vec<Worker>,
    nodes: Vec<Node>,
    base: BasePort,
    _folder: DemoFolder,
}

impl Processes {
    fn start(plan: &Plan, base: Option<BasePort>) -> anyhow::Result<Self> {
        let base = port::choose(base, plan.nodes)?;
        let folder = DemoFolder::build(&Parts::beside_this_program()?)?;
        let nodes: Vec<_> = (0..plan.nodes)
            .map(|node| Node::start(&folder, node, base, plan.devices()))
            .collect::<Result<_, _>>()?;
        for node in &nodes {
            node.wait_until_ready()?;
        }
        let workers = (0..plan.ranks)
            .map(|rank| Worker::start(&folder, plan, rank, &nodes))
            .collect::<Result<_, _>>()?;
        Ok(Self { workers, nodes, base, _folder: folder })
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.nodes
            .iter()
            .map(|node| Endpoint { host: node.address().to_string(), base: self.base, ssh: None })
            .collect()
    }
}

/// The node of a rank. Ranks are spread evenly and in order; some nodes may get one more.
fn node_of(rank: u32, ranks: u32, nodes: u32) -> u32 {
    (u64::from(rank) * u64::from(nodes) / u64::from(ranks)) as u32
}

/// Runs the demo; if there is a screen, with the user's settings.
pub fn demo(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    let config = if args.is_headless() { Config::default() } else { args.priced.read()? };
    args.look.requested()?;
    new_file::check(&args.svg)?;
    // The collectors find the same key by themselves, so another terminal can watch too.
    let key = Key::find(None).map_err(UsageError::Key)?;
    let mut processes = Processes::start(&plan, args.base_port)?;
    let endpoints = processes.endpoints();
    eprintln!("{}", port::invitation(plan.nodes, processes.base));
    let capturer = Capturer::new(Targets { endpoints: endpoints.clone(), key: key.clone() });
    let (live, arrivals) = live::connect(endpoints.clone(), key, None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if args.is_headless() {
        let link = headless::Link { arrivals, live, endpoints };
        return runtime.block_on(headless::follow(
            &mut processes,
            link,
            &plan,
            args.json,
            args.svg.as_deref(),
        ));
    }
    // The terminal is asked for its background only if there is a screen.
    let look = args.look.look(config.look)?;
    let shown = runtime.block_on(watch(
        arrivals,
        endpoints,
        WatchOptions {
            look,
            config,
            live: Some(live),
            capturer: Some(capturer),
            // The first redraw hides the line above.
            invitation: Some(format!(
                "join from another terminal: {}",
                port::viewer(plan.nodes, processes.base)
            )),
            ..WatchOptions::default()
        },
    ));
    let failed = rank::report_failures(&mut processes.workers);
    shown?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        use clap::Parser;

        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            demo: DemoArgs,
        }
        let words = ["demo"].into_iter().chain(line.split_whitespace());
        let args = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        args.demo.plan().map_err(|error| error.to_string())
    }

    #[test]
    fn bounds_are_reported() {
        let wrong = |line: &str| plan(line).unwrap_err();
        assert!(wrong("--ranks 0").contains("1 to 1024"));
        assert!(wrong("--ranks 2 --nodes 3").contains("1 to 2 for 2 ranks"));
        assert!(wrong("--slow 9:2").contains("ranks 0 to 7"));
        assert!(wrong("--slow 1").contains("6:1.3"));
        assert!(wrong("--slow 1:-2").contains("6:1.3"));
        assert!(wrong("--throttle 1:3000").contains("1980 MHz"));
        assert!(wrong("--throttle 8:1275").contains("ranks 0 to 7"));
        assert!(wrong("--slow-host 1:x").contains("3:40ms"));
        assert!(wrong("--hang 25:8").contains("ranks 0 to 7"));
        assert!(wrong("--stages 3").contains("a divisor of 8"));
        assert!(wrong("--stages 0").contains("a divisor of 8"));
        assert!(wrong("--long-sequences").contains("add --stages 4"));
        assert!(wrong("--more-layers 1:2").contains("add --stages 4"));
        assert!(wrong("--stages 4 --more-layers 4:2").contains("stages 0 to 3"));
        assert!(wrong("--stages 4 --more-layers 3:0").contains("1 to 1000 layers"));
        assert!(plan("--stages 4 --more-layers 3:2 --long-sequences").is_ok());
        assert!(wrong("--headless --hang 40:3").contains("39"));
        assert!(wrong("--headless --steps 0").contains("at least 1"));
        assert!(
            plan("--headless --slow 6:1.3 --slow 5:2 --throttle 2:1275 --slow-host 3:40ms --hang 25:3")
                .is_ok()
        );
    }

    #[test]
    fn every_node_has_ranks_and_they_are_in_order() {
        for (ranks, nodes) in [(8, 2), (7, 3), (64, 8), (5, 5), (1, 1)] {
            let placed: Vec<_> = (0..ranks).map(|rank| node_of(rank, ranks, nodes)).collect();
            assert!(placed.is_sorted());
            assert!((0..nodes).all(|node| placed.contains(&node)), "{ranks} on {nodes}");
        }
    }
}
