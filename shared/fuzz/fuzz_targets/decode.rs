//! Decodes untrusted bytes as frames and as a recording. Decoding never panics, decoded frames survive
//! another round trip, and every query works on a job or capture built from them.
//!
//!     cd shared/fuzz && cargo run --example seeds [RECORDING...] && cargo +nightly fuzz run decode
//!
//! The input is a row of frames, each with a kind, a length of two bytes, and a payload. The frame's header
//! is built here, because a mutation that breaks its length would hide everything after it. The input is also
//! decoded unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xpu_analysis::capture::{Capture, Clocks, Diff, ShapeGemms, Report};
use xpu_analysis::what_if::{Job, WhatIf};
use xpu_wire::{codec::{self, DecodeError}, frame::Frame, unit::Moment};
use xpu_model::{finding, job::Jobs, status::Status};
use xpu_recording::{Media, Recording};

fuzz_target!(|input: &[u8]| {
    let _ = codec::decode(input);
    if let Ok(mut recording) = Recording::open(Media::memory(input.to_vec())) {
        for entry in recording.entries().to_vec() {
            let _ = recording.block(&entry).map(|block| block.map(|block| block.records().count()));
        }
    }
    let (mut jobs, mut capture) = (Jobs::default(), Capture::default());
    let (mut latest, mut rest) = (Moment(0), input);
    while let [kind, low, high, after @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (payload, next) = after.split_at(length);
        if let Ok(frame) = codec::decode(&framed(*kind, payload)) {
            comes_back(&frame);
            latest = latest.max(frame.now);
            jobs.fold(&frame);
            capture.take(&frame);
        }
        rest = next;
    }
    let _ = format!("{:?}", Report::of(&capture));
    let _ = format!("{:?}", Diff::of(&capture, &capture));
    let _ = format!("{:?}", (Clocks::of(&capture), ShapeGemms::of(&capture)));
    let _ = Job::of_capture(&capture).map(|job| format!("{:?}", WhatIf::of(&job)));
    for job in jobs.iter() {
        for now in [Moment(0), latest, Moment(u64::MAX)] {
            let _ = finding::examine(job, now);
            let _ = format!("{:?}", Status::of(&jobs, job, now));
        }
    }
});

fn framed(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("two bytes of length");
    [&codec::MAGIC[..], &codec::VERSION.to_le_bytes(), &[kind, 0], &length.to_le_bytes(), payload].concat()
}

fn comes_back(frame: &Frame) {
    let bytes = codec::encode(frame);
    match codec::decode(&bytes) {
        // Compared as bytes, because NaN is not equal to itself.
        Ok(again) => assert_eq!(codec::encode(&again), bytes),
        Err(DecodeError::Length { .. }) if bytes.len() > codec::LARGEST_FRAME => {}
        Err(error) => panic!("{error}: {frame:?}"),
    }
}
