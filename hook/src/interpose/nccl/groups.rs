//! Groups: a thread's outermost `ncclGroupEnd` launches all calls since its `ncclGroupStart`.

use std::ffi::{c_int, c_void};

use xpu_wire::ledger::Call;

use super::{MISSING, NCCL, memory};
use crate::{interpose::interpose, observe::group::Group, process::clock::coarse_now};

interpose! {
    fn ncclGroupStart() -> c_int in NCCL, or MISSING, even off;
    before |lane| lane;
    after |_, lane, result| if result == 0 { let _ = lane.group(Group::open); };

    fn ncclGroupEnd() -> c_int in NCCL, or MISSING, even off;
    before |lane| if lane.group(|group| group.is_outermost()) == Some(true) {
        if lane.group(|group| group.may_allocate(lane)) == Some(true) {
            memory::begin(lane);
        }
        lane.entered(Call::GroupEnd, coarse_now());
        let _ = lane.group(|group| group.launch(lane));
    };
    after |lane, (), result| {
        memory::end(lane);
        let _ = lane.group(|group| group.close(lane, result));
        lane.left();
    };

    /// Only estimates the group's duration: launches no operation, but creates communicators.
    fn ncclGroupSimulateEnd(information: *mut c_void) -> c_int in NCCL, or MISSING, even off;
    before |lane| lane;
    after |_, lane, result| {
        let _ = lane.group(|group| group.discard(lane, result));
    };
}
