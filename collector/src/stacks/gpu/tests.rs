use std::io::Read as _;

use flate2::read::GzDecoder;

use super::*;

/// A core dump of an H100 (driver 580.159.04, CUDA 13.0). A kernel of 3 blocks of 64 threads wrote to address
/// 16.
const ILLEGAL_ADDRESS: &[u8] = include_bytes!("address.core.gz");

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut whole).unwrap();
    whole
}

#[test]
fn a_core_dump_names_the_kernel_its_size_and_what_stopped_it() {
    let kernels = core::kernels(&unpacked(ILLEGAL_ADDRESS)).unwrap();
    assert_eq!(kernels.len(), 1, "{kernels:?}");
    let kernel = &kernels[0];
    assert_eq!((kernel.device, kernel.name.as_deref()), (0, Some("writes_to_nowhere")));
    assert_eq!((kernel.size, kernel.blocks, kernel.sms), (Some(([3, 1, 1], [64, 1, 1])), 3, 3));
    let illegal = core::Exception { error: "illegal address".to_owned(), block: Some([1, 0, 0]) };
    assert_eq!(kernel.exception, Some(illegal));
    let reported = threads_of(&kernels);
    assert_eq!((reported.len(), reported[0].name.as_str()), (1, "GPU 0"));
    let lines: Vec<_> = reported[0].frames.iter().map(|frame| frame.function.as_str()).collect();
    assert_eq!(
        lines,
        [
            "writes_to_nowhere",
            "illegal address in block 1,0,0",
            "grid 3x1x1, block 64x1x1",
            "3 blocks on 3 SMs"
        ]
    );
    assert!(reported[0].is_gpu() && super::threads_of(&[])[0].is_gpu());
}

/// In a core dump of a large kernel, the blocks with the exception have ended, and other blocks have none.
#[test]
fn an_exception_of_ended_blocks_is_that_of_the_kernel_with_the_instruction() {
    let mut core = unpacked(ILLEGAL_ADDRESS);
    core::forget_lanes(&mut core);
    let kernels = core::kernels(&core).unwrap();
    assert_eq!(kernels.len(), 1, "{kernels:?}");
    assert_eq!((kernels[0].name.as_deref(), kernels[0].blocks), (Some("writes_to_nowhere"), 3));
    assert_eq!(kernels[0].stopped_by().as_deref(), Some("illegal address"));
    // All blocks have ended.
    core::forget_blocks(&mut core);
    let kernels = core::kernels(&core).unwrap();
    assert_eq!(kernels.len(), 1, "{kernels:?}");
    assert_eq!((kernels[0].name.as_deref(), kernels[0].size), (Some("writes_to_nowhere"), None));
    let shown: Vec<_> = threads_of(&kernels)[0].frames.iter().map(|frame| frame.function.clone()).collect();
    assert_eq!(shown, ["writes_to_nowhere", "illegal address"]);
}

#[test]
fn a_part_of_a_core_dump_and_other_files_are_refused() {
    let whole = unpacked(ILLEGAL_ADDRESS);
    // The section headers are at the end.
    for length in [0, 10, 64, 1000, whole.len() / 2, whole.len() - 1] {
        assert!(core::kernels(&whole[..length]).is_err(), "{length} bytes");
    }
    assert!(core::kernels(&fs::read("/proc/self/exe").unwrap()).is_err());
    // A wrong number in the file causes no panic.
    for place in (0..whole.len()).step_by(997) {
        let mut broken = whole.clone();
        broken[place] ^= 0xff;
        let _ = core::kernels(&broken);
    }
}

/// A thread that was stopped while it opened the pipe reads it again a moment later.
#[test]
fn a_pipe_that_nobody_reads_at_the_moment_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let [pipe, file] = ["pipe", "file"].map(|name| dir.path().join(name));
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: the name ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let prepared = Prepared { pipe: pipe.clone(), file };
    let mut reader = None;
    let begin = || {
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe);
        reader.get_or_insert_with(|| opened.unwrap());
    };
    prepared.trigger(begin).unwrap();
    let mut text = String::new();
    reader.expect("it waited").read_to_string(&mut text).unwrap();
    assert_eq!(text, "1\n");
}

#[test]
fn a_core_dump_that_may_not_fit_is_not_requested() {
    let folder = Path::new("/run/gpu");
    assert_eq!(has_space(folder, Some(LARGEST)), Ok(()));
    assert_eq!(has_space(folder, None), Ok(()));
    assert_eq!(
        has_space(folder, Some(30_000_000)).unwrap_err(),
        "its GPUs' core dump was not requested: it may need 200 MB, and /run/gpu has 30 MB free"
    );
}
