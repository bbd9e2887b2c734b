use std::collections::BTreeSet;

use xpu_wire::{
    frame::{
        Body, CaptureWindow, Frame, TimedCaptureSheet,
        example::capture::{BEGIN, MS, part, sheet, with_activity},
    },
    id::Step,
    unit::Nanoseconds,
};

use super::*;

fn capture(bodies: Vec<Body>) -> Capture {
    let mut capture = Capture::default();
    for body in bodies {
        let frame = Frame { host: "a".into(), number: 0, now: Moment(0), lost: 0, body };
        capture.take(&frame);
    }
    capture
}

fn trace(capture: &Capture, rank: u32) -> (String, Value) {
    let (rank, clocks) = (Rank(rank), Clocks::of(capture));
    let of = &capture.ranks[&rank];
    let at = |moment| clocks.aligned(&of.host, moment).0;
    let mut out = Vec::new();
    let trace = Trace { capture, rank, of, begin: begin(capture, &clocks), at: &at };
    trace.write(Path::new("rank-0001.json"), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let value = serde_json::from_str(&text).unwrap();
    (text, value)
}

fn of<'a>(trace: &'a Value, category: &str) -> Vec<&'a Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == category).collect()
}

#[test]
fn a_rank_is_found_as_hta_looks_for_it_and_times_are_those_of_the_capture() {
    let capture = capture(vec![
        Body::CaptureSheet(sheet(&[0, 1])),
        Body::CapturePart(part(0, 0)),
        Body::CapturePart(part(1, 0)),
    ]);
    let (text, trace) = trace(&capture, 1);
    let line = text.lines().find(|line| line.contains("\"rank\"")).unwrap();
    assert_eq!(line.trim(), "\"rank\": 1,", "HTA wants the blank, and takes the first such line");
    assert_eq!(trace["distributedInfo"]["world_size"], 2);
    let base = trace["baseTimeNanoseconds"].as_u64().unwrap();
    let steps = of(&trace, "user_annotation");
    let named: Vec<_> = steps.iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(named, ["ProfilerStep#41", "ProfilerStep#42"]);
    assert_eq!(base + (steps[0]["ts"].as_f64().unwrap() * 1e3) as u64, BEGIN);
    assert_eq!(steps[0]["dur"], 20_000.0);
    // A GEMM from 1 ms on and a collective from 6 ms on, on streams that HTA does not read as no stream.
    let kernels = of(&trace, "kernel");
    let said: Vec<_> =
        kernels.iter().map(|event| (event["name"].as_str().unwrap(), event["tid"].as_u64())).collect();
    assert_eq!(said[..2], [("gemm 8x4x2", Some(1)), ("ncclKernel_AllReduce", Some(2))]);
    assert_eq!(
        (kernels.len(), &kernels[0]["ts"], &kernels[0]["dur"]),
        (4, &json!(1_000.0), &json!(10_000.0))
    );
    assert_eq!(kernels[1]["args"]["Seq"], 10);
    // Each kernel ends one arrow, which begins at the call with the same correlation id.
    let called: BTreeSet<_> =
        of(&trace, "cuda_runtime").iter().filter_map(|event| event["args"]["correlation"].as_u64()).collect();
    let ran: BTreeSet<_> = kernels.iter().filter_map(|event| event["args"]["correlation"].as_u64()).collect();
    assert!(called == ran && ran.len() == 4 && !ran.contains(&0), "{called:?} {ran:?}");
    assert_eq!(of(&trace, "ac2g").len(), 8);
    let waits =
        of(&trace, "cuda_runtime").into_iter().filter(|event| event["name"] == "cudaStreamSynchronize");
    assert_eq!(waits.map(|event| event["dur"].as_f64().unwrap()).sum::<f64>(), 16_000.0);
}

#[test]
fn kernels_of_cupti_stand_for_what_the_hook_timed_and_know_what_launched_them() {
    let capture = capture(vec![Body::CaptureSheet(sheet(&[0])), Body::CapturePart(with_activity(0))]);
    let (_, trace) = trace(&capture, 0);
    let kernels = of(&trace, "kernel");
    assert_eq!(kernels.len(), 4, "a GEMM's kernel and NCCL's in each of two steps, and nothing twice");
    assert_eq!(kernels[0]["name"], "my::gemm_kernel<4>(float*)");
    assert_eq!((&kernels[0]["args"]["m"], &kernels[0]["args"]["dtype"]), (&json!(8), &json!("bf16")));
    assert_eq!(kernels[1]["args"]["Collective name"], "allreduce");
    assert_eq!(of(&trace, "gpu_memcpy")[0]["name"], "Memcpy HtoD");
    assert!(
        (of(&trace, "gpu_memcpy")[0]["args"]["memory bandwidth (GB/s)"].as_f64().unwrap() - 0.001).abs()
            < 1e-9
    );
    let python = of(&trace, "python_function");
    assert_eq!((python.len(), &python[0]["args"]["Python id"]), (2, &json!(1)));
    let arrows: BTreeSet<_> = of(&trace, "ac2g").iter().map(|event| event["id"].as_u64()).collect();
    assert_eq!(arrows.len(), 6);
}

#[test]
fn a_time_in_place_of_steps_is_no_step_of_the_profiler() {
    let window = CaptureWindow { at: Moment(BEGIN), length: Nanoseconds(20 * MS) };
    let mut one = part(0, 0);
    let account = one.account.as_mut().unwrap();
    account.marks.truncate(2);
    for (number, mark) in (0..).zip(&mut account.marks) {
        mark.completed = Step(number);
    }
    let timed = TimedCaptureSheet { sheet: sheet(&[0]), window };
    let (text, trace) = trace(&capture(vec![Body::TimedCaptureSheet(timed), Body::CapturePart(one)]), 0);
    assert!(!text.contains("ProfilerStep"));
    assert_eq!(of(&trace, "user_annotation")[0]["name"], "xpu-top window");
}

#[test]
fn a_file_holds_one_rank_and_a_folder_all() {
    let two = capture(vec![
        Body::CaptureSheet(sheet(&[0, 1])),
        Body::CapturePart(part(0, 0)),
        Body::CapturePart(part(1, 0)),
    ]);
    assert!(paths(&two, Path::new("a.json.gz")).is_err());
    let all = paths(&two, Path::new("a")).unwrap();
    assert_eq!(all[1], (Rank(1), PathBuf::from("a/rank-0001.pt.trace.json.gz")));
    let one = capture(vec![Body::CaptureSheet(sheet(&[1])), Body::CapturePart(part(1, 0))]);
    assert_eq!(paths(&one, Path::new("a.json.gz")).unwrap(), [(Rank(1), PathBuf::from("a.json.gz"))]);
}
