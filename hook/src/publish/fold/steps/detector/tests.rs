use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    gemm::{ComputeType, Routine},
};

use super::*;

#[test]
fn a_search_ends_even_if_no_launch_repeats() {
    let mut detector = Detector::default();
    let mut reported = 0;
    while matches!(detector.phase, Phase::Searching { .. }) {
        assert!(reported <= LAUNCHES, "its log was emptied again and again");
        for _ in 0..10_000 {
            reported += 1;
            let launch = Launch::kernel(reported as usize, [1; 3], [1; 3]);
            detector.launched(0, Launch { at: reported, ..launch });
        }
        detector.settle(reported + 1, None);
    }
    assert_eq!(reported, LAUNCHES);
    let Phase::Resting { until, .. } = detector.phase else { panic!("{:?}", detector.phase) };
    assert!(until >= reported * REST_FOR_EACH, "a thousandth of the time");
}

/// Runs steps of 20 ms on each of two threads, whose launches mix.
fn two_threads(detector: &mut Detector, launches: impl Fn(usize, u64) -> Vec<Launch>) {
    let (mut chance, mut launched) = (1_u64, [0_u64; 2]);
    for step in 0..2_000 {
        let from = step * 20_000_000;
        for (thread, launched) in launched.iter_mut().enumerate() {
            // The second thread is behind by a varying time.
            let mut at =
                (*launched).max(from + thread as u64 * (xpu_wire::sampling::priority(step / 3) % 40_000_000));
            for launch in launches(thread, step) {
                chance = xpu_wire::sampling::priority(chance);
                at += 1 + chance % 200_000;
                detector.launched(thread, Launch { at, ..launch });
            }
            *launched = at;
        }
        detector.settle(from + 20_000_000, None);
    }
}

/// Eight layers forward and backward, and an update of each. GEMMs have the same names on all GPUs; kernels
/// have different ones.
fn of_one_gpu(thread: usize) -> Vec<Launch> {
    let kernel = |which| Launch::kernel(100 * (thread + 1) + which, [1024, 1, 1], [256, 1, 1]);
    let gemm = |which| Launch { kind: Kind::Gemm, ..Launch::kernel(which, [1; 3], [1; 3]) };
    let forward = std::iter::repeat_n([gemm(1), kernel(1), gemm(2), kernel(2)], 8).flatten();
    let backward = std::iter::repeat_n([gemm(3), gemm(4), kernel(3)], 8).flatten();
    std::iter::once(Launch::copy(1 << 20)).chain(forward).chain(backward).chain([kernel(20); 8]).collect()
}

#[test]
fn threads_of_several_gpus_with_the_same_steps_count_those_of_one() {
    let mut detector = Detector::default();
    two_threads(&mut detector, |thread, _| of_one_gpu(thread));
    let tracked = detector.tracked.expect("the period of one thread");
    assert_eq!((tracked.launches, tracked.by), (64, By::Launches));
    assert!(tracked.marker.thread.is_some() && tracked.is_late, "{tracked:?}");
    launches::count_steps_by(None);
}

#[test]
fn threads_with_other_work_are_not_one_of_several() {
    let mut detector = Detector::default();
    two_threads(&mut detector, |thread, step| {
        // Thread 0 does a quarter of its step in each of these, and an update by a new kernel in every
        // fourth.
        let update =
            (thread == 0 && step % 4 == 0).then(|| Launch::kernel(900 + step as usize, [1; 3], [64, 1, 1]));
        let times = if thread == 0 { 1 } else { 2 };
        let work = std::iter::repeat_with(|| of_one_gpu(thread)).take(times).flatten();
        work.chain(update).collect()
    });
    assert!(detector.tracked.is_none(), "one thread's period is a part of a step: {:?}", detector.tracked);
}

const MS: u64 = 1_000_000;

fn gemm(transposed: bool) -> GemmShape {
    let (datatype, compute) = (DataType::Bfloat16, ComputeType::Float32);
    GemmShape {
        m: 512,
        n: 512,
        k: 512,
        batch: 1,
        datatype,
        compute,
        transposed: (transposed, false),
        routine: Routine::Gemm,
    }
}

/// The launches of a loop, with its clock.
struct Loop {
    detector: Detector,
    now: u64,
    /// The number of the last step that an NCCL operation ended.
    number: Option<u64>,
}

impl Loop {
    fn new() -> Self {
        Self { detector: Detector::default(), now: 0, number: None }
    }

    fn gemm(&mut self, transposed: bool) {
        let shape = gemm(transposed);
        self.detector.gemm(&shape);
        self.launch(Launch::gemm(&shape));
    }

    fn kernel(&mut self, which: usize) {
        self.launch(Launch::kernel(which, [64, 1, 1], [256, 1, 1]));
    }

    fn all_reduce(&mut self, bytes: u64) {
        let launch = Launch { at: self.now, ..Launch::collective(Operation::AllReduce, bytes, 2) };
        self.number = self.detector.collective(&launch, 2).map(|(number, _)| number).or(self.number);
        self.launch(launch);
    }

    fn launch(&mut self, launch: Launch) {
        self.now += MS / 10;
        self.detector.launched(1, Launch { at: self.now, ..launch });
    }

    /// The hook's thread reads all launches.
    fn waits(&mut self) {
        self.now += 20 * MS;
        if self.detector.settle(self.now, Some(30 * MS)) {
            self.number = None;
        }
    }

    fn by(&self) -> Option<By> {
        self.detector.tracked.map(|tracked| tracked.by)
    }

    /// Repeats a step until steps are counted, and then ten times more. Returns the number of all steps.
    fn repeats(&mut self, step: impl Fn(&mut Self, u64)) -> u64 {
        let (mut number, mut last) = (0, u64::MAX);
        while number < last {
            number += 1;
            assert!(number < 20_000, "no period is found");
            step(self, number);
            self.waits();
            if self.by().is_some() {
                last = last.min(number + 10);
            }
        }
        number
    }
}

#[test]
fn a_figure_that_a_log_entry_reduces_too_counts_no_steps() {
    let mut program = Loop::new();
    let steps = program.repeats(|program, step| {
        for _ in 0..4 {
            program.gemm(true);
            program.kernel(1);
        }
        for _ in 0..4 {
            program.gemm(false);
            program.all_reduce(1 << 20);
        }
        // The norm of the gradients, and sometimes the loss.
        program.all_reduce(4);
        program.kernel(2);
        if step.is_multiple_of(10) {
            program.all_reduce(4);
        }
    });
    assert_eq!((program.by(), program.number), (Some(By::Total), Some(steps)));
    launches::count_steps_by(None);
}

/// In a tensor-parallel model, every batch has the operations of the forward pass, even in evaluations.
fn tensor_parallel(program: &mut Loop, backward: bool) {
    for _ in 0..4 {
        program.gemm(true);
        program.kernel(1);
        program.all_reduce(1 << 20);
    }
    program.kernel(2);
    if backward {
        for _ in 0..4 {
            program.gemm(false);
            program.kernel(3);
            program.all_reduce(1 << 20);
        }
        for _ in 0..8 {
            program.kernel(4);
        }
    }
}

#[test]
fn an_operation_that_evaluations_share_counts_no_steps() {
    let mut program = Loop::new();
    let steps = program.repeats(|program, _| tensor_parallel(program, true));
    assert_eq!((program.by(), program.number), (Some(By::Total), Some(steps)));
    for _ in 0..5 {
        tensor_parallel(&mut program, false);
        program.waits();
    }
    for _ in 0..3 {
        tensor_parallel(&mut program, true);
        program.waits();
    }
    assert_eq!(program.by(), Some(By::Launches));
    // The launch that begins a step occurs once more; the GEMMs show all steps so far.
    assert_eq!(program.detector.begun(1, program.now), None);
    assert_eq!(program.detector.begun(2, program.now), Some((steps + 4, program.now)));
    launches::count_steps_by(None);
}

/// As with libtorch: the backward pass runs on a thread of its own, and the host launches many steps at once.
#[test]
fn the_gemms_of_a_thread_that_is_read_later_do_not_count_the_steps() {
    let mut program = Loop::new();
    let step = |program: &mut Loop, backward_is_read: bool| {
        for _ in 0..4 {
            program.gemm(true);
            program.kernel(1);
        }
        let shape = gemm(false);
        for _ in 0..4 {
            if backward_is_read {
                program.detector.gemm(&shape);
            }
            program.now += MS / 10;
            program.detector.launched(2, Launch { at: program.now, ..Launch::gemm(&shape) });
        }
        program.kernel(2);
    };
    let steps = program.repeats(|program, _| step(program, true));
    assert_eq!(program.by(), Some(By::Launches));
    for _ in 0..5 {
        step(&mut program, false);
    }
    assert_eq!(program.detector.begun(1, program.now), None);
    assert_eq!(program.detector.begun(2, program.now), Some((steps + 6, program.now)));
    launches::count_steps_by(None);
}

/// For one turn, a thread that is read late looks like an evaluation.
#[test]
fn a_thread_that_is_read_late_changes_nothing() {
    let mut program = Loop::new();
    program.repeats(|program, _| tensor_parallel(program, true));
    for _ in 0..3 * 8 {
        program.all_reduce(1 << 20);
    }
    for steps in [1, 2] {
        for _ in 0..steps * 4 {
            program.detector.gemm(&gemm(true));
            program.detector.gemm(&gemm(false));
        }
        program.waits();
    }
    assert_eq!(program.by(), Some(By::Total));
    launches::count_steps_by(None);
}
