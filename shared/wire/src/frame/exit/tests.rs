use super::*;

fn exit(ending: Ending) -> RankExit {
    RankExit {
        job: "j".into(),
        rank: Rank(3),
        pid: Pid(7),
        at: Moment(2_000_000_000),
        step: Some(Step(40)),
        ending,
        exception: None,
        error: None,
        kernel: None,
        memory: None,
        asked: None,
    }
}

fn raised() -> PythonException {
    let text = "ValueError\0\0bad loss\nand more\0main\t/a/train.py\t30\nstep\t/a/train.py\t12\n";
    PythonException::parse(text, Moment(1_900_000_000))
}

#[test]
fn an_exception_is_reported_with_its_innermost_frames() {
    let exit = RankExit { exception: Some(raised()), ..exit(Ending::Code(1)) };
    assert_eq!(exit.cause(), EndCause::Exception);
    let expected =
        "raised ValueError: bad loss and exited with code 1, in step (train.py:12) < main (train.py:30)";
    assert_eq!(exit.sentence(), expected);
}

#[test]
fn an_error_that_lasts_is_the_cause_and_one_that_passed_long_ago_is_not() {
    let error = |function: &str, code, lasting, at| {
        Some(ApiError { function: function.to_owned(), code, lasting, at: Moment(at) })
    };
    let with = |error| RankExit { exception: Some(raised()), error, ..exit(Ending::Code(1)) };
    let fault = with(error("cudaStreamSynchronize", 700, true, 1));
    assert_eq!(fault.cause(), EndCause::CudaError);
    let sentence = fault.sentence();
    assert!(
        sentence.contains("cudaStreamSynchronize failed with 700 (cudaErrorIllegalAddress)"),
        "{sentence}"
    );
    assert_eq!(with(error("ncclAllReduce", 6, false, 1_899_000_000)).cause(), EndCause::NcclError);
    let retried = with(error("cudaMalloc", 2, false, 1));
    assert_eq!(retried.cause(), EndCause::Exception);
    assert!(!retried.sentence().contains("cudaMalloc"));
}

#[test]
fn memory_that_was_refused_is_reported_with_sizes() {
    let error = Some(ApiError {
        function: "cudaMalloc".to_owned(),
        code: 2,
        lasting: false,
        at: Moment(1_899_000_000),
    });
    let with = |held_at, used| {
        let (free, nccl, sites) = Default::default();
        let memory =
            Some(RefusedMemory { requested: 2 << 30, held: 70 << 30, held_at, used, free, nccl, sites });
        RankExit { exception: Some(raised()), error: error.clone(), memory, ..exit(Ending::Code(1)) }
    };
    let grown = with(Some((Step(10), 61 << 30)), Some((79 << 30, 80 << 30)));
    assert_eq!(grown.cause(), EndCause::CudaError);
    let reported = "; before that cudaMalloc failed with 2 (cudaErrorMemoryAllocation): requested 2.00 GiB; the process held 70.00 GiB, \
                9.00 GiB more than at step 10; 79.00 of 80.00 GiB of its GPU were in use";
    assert!(grown.sentence().ends_with(reported), "{}", grown.sentence());
    assert!(grown.memory.is_some_and(|memory| memory.grew() && !memory.is_mostly_of_others()));
    let reported = ": requested 2.00 GiB; the process held 70.00 GiB";
    assert!(with(None, None).sentence().ends_with(reported), "{}", with(None, None).sentence());
    let steady = with(Some((Step(10), 70 << 30)), Some((150 << 30, 160 << 30)));
    assert!(steady.memory.is_some_and(|memory| !memory.grew() && memory.is_mostly_of_others()));
}

#[test]
fn the_call_site_that_grew_is_named_with_what_was_free() {
    let memory = super::super::example::exit().memory;
    let refused =
        ApiError { function: "cudaMalloc".to_owned(), code: 2, lasting: false, at: Moment(1_899_000_000) };
    let with = |message: &str| {
        let exception = PythonException { message: message.to_owned(), ..raised() };
        let (error, memory) = (Some(refused.clone()), memory.clone());
        RankExit { exception: Some(exception), error, memory, ..exit(Ending::Code(1)) }
    };
    let reported = "9.00 GiB more than at step 10, including 9.00 GiB allocated at train.py:12 step (450 times, last after step 460); \
                1.00 of 80.00 GiB of its GPU were free; NCCL took 1.50 GiB";
    let plain = with("CUDA out of memory.");
    assert!(plain.sentence().ends_with(reported), "{}", plain.sentence());
    let pytorch = |unused: &str| {
        with(&format!(
            "CUDA out of memory. 60.00 GiB is allocated by PyTorch, and {unused} is reserved by PyTorch but unallocated."
        ))
    };
    let unused = |exit: RankExit| exit.exception.and_then(|exception| exception.unused_by_pytorch());
    assert_eq!(unused(pytorch("512.50 MiB")), Some((512 << 20) + (1 << 19)));
    assert_eq!([plain, pytorch("much")].map(unused), [None, None]);
    assert_eq!(pytorch("512.50 MiB").fragmented(), None, "less than was requested");
    assert_eq!(pytorch("2.00 GiB").fragmented(), Some(2 << 30));
    assert!(pytorch("9.50 GiB").sentence().contains("; PyTorch had 9.50 GiB reserved and unused, in blocks"));
}

#[test]
fn a_kernel_that_failed_is_the_cause_and_is_reported_last() {
    let kernel = FailedKernel {
        device: 2,
        name: "scatter".to_owned(),
        error: "illegal address".to_owned(),
        block: Some([7, 0, 0]),
        grid_size: Some([64, 1, 1]),
        block_size: Some([128, 1, 1]),
        blocks: 64,
        sms: 32,
    };
    let ended = FailedKernel { block: None, grid_size: None, block_size: None, ..kernel.clone() };
    let of_ended = RankExit { kernel: Some(ended), ..exit(Ending::Code(1)) }.sentence();
    assert!(of_ended.ends_with("; on GPU 2, scatter failed: illegal address"), "{of_ended}");
    let exit = RankExit { exception: Some(raised()), kernel: Some(kernel), ..exit(Ending::Code(1)) };
    assert_eq!(exit.cause(), EndCause::CudaError);
    let expected = "; on GPU 2, scatter failed: illegal address in block 7,0,0, grid 64x1x1, block 128x1x1, 64 blocks on 32 SMs";
    assert!(exit.sentence().ends_with(expected), "{}", exit.sentence());
}

#[test]
fn texts_of_a_foreign_process_have_no_control_characters() {
    let raised = PythonException::parse("E\u{1b}[2J\0t\0a\u{7}\0f\tg\tnone\nh\ti\t3", Moment(1));
    assert_eq!((raised.kind.as_str(), raised.message.as_str(), raised.frames.len()), ("E [2J", "a ", 1));
    assert_eq!(PythonException::parse("", Moment(1)).frames, []);

    // A program may give a class any name, but no name may begin a new line of a log, or reverse the text
    // after it.
    let text = "E\nERROR all is lost\u{202e}\0t\u{2028}\0a\u{202e}\nb\0f\u{202e}\tg\u{2028}\t3";
    let exception = PythonException::parse(text, Moment(1));
    let parts = [&exception.kind, &exception.thread, &exception.message];
    assert_eq!(parts, ["E ERROR all is lost ", "t ", "a \nb"]);
    let reported = RankExit { exception: Some(exception), ..exit(Ending::Code(1)) }.sentence();
    assert_eq!(reported, "raised E ERROR all is lost : a  and exited with code 1, in f  (g :3)");
}
