//! Hosts.

use xpu_client::arrival::Link;
use xpu_simulation::Simulation;
use xpu_tests::Lab;
use xpu_tui::palette::Depth;
use xpu_wire::frame::{Body, Throttle};

use crate::{SMALL, USUAL, golden, golden_at};

/// Eight hosts. One has an older collector, one has lost frames, one has a throttled GPU and a hook with a
/// blind spot, and one is down.
fn mixed() -> Lab {
    let mut lab = Lab::new(Simulation::new(7, 8, 8));
    let mut snapshots = lab.simulation().snapshots(1_841);
    let Body::Snapshot(snapshot) = &mut snapshots[5].body else { unreachable!() };
    "0.0.9".clone_into(&mut snapshot.version);
    lab.arrive(vec![snapshots.remove(5)]);
    let mut frames = lab.simulation().digests(1_842);
    frames[1].lost = 12;
    let Body::Digest(digest) = &mut frames[4].body else { unreachable!() };
    let rank = &mut digest.ranks[5];
    rank.blind = vec!["libcublas.so.12 is linked statically: its GEMMs are not seen".to_owned()];
    rank.overhead_ppm = 1_400;
    if let Some(device) = &mut rank.device {
        (device.throttle, device.temperature) = (Some(Throttle::HARDWARE_THERMAL), Some(91));
    }
    lab.arrive(frames);
    let gone = lab.simulation().host(2);
    let why =
        "no answer on port 18891 for 12 s; is a collector running there, and does a firewall let it through?";
    lab.link(2, Link::Down { why: why.to_owned() });
    lab.run_only(12, |frame| frame.host != gone && frame.host.as_str() != "gpu-005")
}

#[test]
fn problems_of_a_host_are_on_its_line_with_the_worst_first() {
    let mut lab = mixed();
    let screen = lab.keys("9").screen(132, 40);
    screen
        .shows("8 hosts")
        .shows("✖ down")
        .shows("◷ silent")
        .shows("▲ 0.0.9")
        .shows("no answer on port 18891");
    screen.shows("✖ 1 down   ◷ 1 silent   ▲ 2 with problems");
    golden_at("hosts", USUAL, &mut lab);
    let screen = lab.keys("j").screen(132, 40);
    screen
        .shows("libcublas.so.12 is linked statically")
        .hides("hottest")
        .shows("0.14 % of wall time of a budget of 0.10 %");
    golden_at("hosts-blind", USUAL, &mut lab);
    lab.keys("<Enter>").screen(132, 40).shows("Rank 32 gpu-005");
}

#[test]
fn hosts_are_sorted_by_what_they_cost_and_how_hot_they_are() {
    let mut lab = mixed();
    lab.keys("9oo<Enter>").screen(132, 40).shows("ovh %↓");
    lab.keys("g").screen(132, 40).shows("▌◷ silent");
    lab.keys("o°<Enter>G").screen(132, 40).shows("°C↓");
    lab.keys("Og").screen(132, 40).shows("°C↑").hides("▌◷ silent");
}

#[test]
fn load_and_traffic_of_hosts_are_shown_and_sortable() {
    let mut lab = Lab::new(Simulation::new(7, 4, 8));
    lab.load().keys("9").screen(200, 40).shows("CPU %").shows("GB/s").shows("of 192 cores").shows("RDMA");
    let screen = lab.screen(200, 40);
    screen.shows("MHz   SM %  DRAM %        PCIe      NVLink  held by").shows("1.6 GB/s");
    golden("hosts-load", &screen);
    lab.screen(151, 40).shows("MHz   SM %  DRAM %  held by").hides("NVLink");
    lab.screen(132, 40).shows("MHz  held by").hides("SM %");
    lab.keys("oc<Enter>").screen(200, 40).shows("CPU %↓");
}

#[test]
fn many_hosts_scroll() {
    let mut lab = Lab::new(Simulation::new(7, 128, 8));
    lab.keys("9").screen(80, 24).shows("all are up").shows("128 hosts").shows("gpu-001");
    lab.keys("G").screen(80, 24).shows("gpu-128").hides("gpu-001");
    lab.keys("<PgUp>").screen(80, 24).shows("gpu-118");
    golden_at("hosts-128", USUAL, &mut lab);
}

#[test]
fn hosts_are_listed_before_they_answer() {
    let mut lab = Lab::at_rest(Simulation::new(7, 4, 8), Depth::True);
    lab.keys("9").screen(80, 24).shows("◌ connecting").shows("◌ 4 connecting");
    golden_at("hosts-connecting", SMALL, &mut lab);
    for host in 0..4 {
        lab.link(host, Link::Down { why: "connection refused on port 18891; no collector listens there: start the job under `xpu-top run`".to_owned() });
    }
    lab.screen(80, 24).shows("✖ 4 down").shows("connection refused");
    golden_at("hosts-down", USUAL, &mut lab);
    let mut nobody = Lab::at_rest(Simulation::new(7, 0, 8), Depth::True);
    nobody.keys("9").screen(80, 24).shows("No hosts given");
    golden_at("hosts-none", SMALL, &mut nobody);
}
