//! Destroyed streams. They are also noted while observing is off, because the streams of operations are
//! tracked then too.

use std::ffi::c_int;

use cudarc::runtime::sys::cudaStream_t;

use crate::{
    gpu::runtime::{CUDART, MISSING},
    interpose::interpose,
};

interpose! {
    fn cudaStreamDestroy(stream: cudaStream_t) -> c_int in CUDART, or MISSING, even off;
    before |lane| {
        lane.observer().communicators.stream_ends(stream);
        lane.observer().exposure.stream_ends(stream);
        lane.observer().streams.stream_ends(stream);
    };
    after |_, (), _| {};
}
