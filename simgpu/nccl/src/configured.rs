//! The collectives of NCCL 2.31 that take a configuration for the call, which is accepted and not read.

use std::ffi::{c_int, c_void};

use crate::action::Kind;
use crate::collectives::collective;

macro_rules! configured {
    ($($kind:ident: fn $name:ident($(by $op:ident)? $(at $root:ident)?);)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            _from: *const c_void,
            _to: *mut c_void,
            count: usize,
            data_type: c_int,
            $($op: c_int,)?
            $($root: c_int,)?
            comm: usize,
            stream: usize,
            _config: *const c_void,
        ) -> c_int {
            $(let _ = $op;)?
            let root = [$($root)?].first().copied().unwrap_or(0);
            collective(Kind::$kind, count, data_type, root, comm, stream)
        }
    )*};
}

configured! {
    AllReduce: fn ncclAllReduceConfig(by op);
    AllGather: fn ncclAllGatherConfig();
    ReduceScatter: fn ncclReduceScatterConfig(by op);
    Broadcast: fn ncclBroadcastConfig(at root);
    Reduce: fn ncclReduceConfig(by op at root);
    AlltoAll: fn ncclAlltoAllConfig();
    Gather: fn ncclGatherConfig(at root);
    Scatter: fn ncclScatterConfig(at root);
}
