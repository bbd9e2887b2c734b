//! Bounds the extra time that the hook costs. `make bench` runs this, and not the tests, because the machine
//! must be idle.

use crate::hazard::Hazard;

/// The limit for a fault that the program repairs.
const FAULT_NS: i64 = 1000;

/// The limit for a launch in the last of many threads: of 200, and of more than the hook has lanes.
const LAUNCH_NS: i64 = 100;

harmless! {
    #[ignore = "times: make bench"]
    a_handled_fault_takes_no_longer: Hazard::linked("mends_faults.c", 0)
        .with("20")
        .with("200")
        .allows("ns a fault", FAULT_NS)
        .allows("ns a fault, 20,000 mappings", FAULT_NS);
    #[ignore = "times: make bench"]
    a_launch_costs_the_same_in_many_threads:
        Hazard::linked("many_threads_launch.c", 0).with("200").allows("ns a launch", LAUNCH_NS);
    #[ignore = "times: make bench"]
    a_launch_costs_the_same_in_threads_beyond_the_lanes:
        Hazard::linked("many_threads_launch.c", 0).with("300").allows("ns a launch", LAUNCH_NS);
}
