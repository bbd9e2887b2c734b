//! No build of the hook brings a library other than the C library into a process.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    process::Command,
};

use xpu_tests::{built, program::run};

/// Parts of glibc that were separate files before 2.34. libm is not listed, because most programs do not load
/// it.
const C_LIBRARY: [&str; 5] =
    ["libc.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"];

/// Symbol prefixes of an allocator, an unwinder and C++.
const FOREIGN: [&str; 8] =
    ["_Z", "_Unwind_", "__cxa_throw", "__gxx", "__register_frame", "malloc", "calloc", "free"];

fn said(program: &str, flags: &[&str], of: &Path) -> String {
    let outcome = run(Command::new(program).args(flags).arg(of));
    assert!(outcome.status.success(), "{program}: {}", outcome.stderr);
    outcome.stdout
}

pub(crate) fn each_build(check: impl Fn(&Path)) {
    for path in built::hooks() {
        check(&path);
    }
}

#[test]
fn the_hook_needs_only_the_c_library() {
    each_build(|hook| {
        for line in said("readelf", &["-dW"], hook).lines().filter(|line| line.contains("(NEEDED)")) {
            let needed = line.split(['[', ']']).nth(1).unwrap();
            assert!(C_LIBRARY.contains(&needed), "{}: {line}", hook.display());
        }
    });
}

#[test]
fn the_hook_contains_no_allocator_unwinder_or_cxx_runtime() {
    each_build(|hook| {
        let names = said("nm", &["-D", "--defined-only", "-j"], hook);
        for expected in ["cudaLaunchKernel", "dlsym", "cuGetProcAddress_v2", "cuGraphLaunch_ptsz"] {
            assert!(names.lines().any(|name| name == expected), "{expected}: {names}");
        }
        // The hook may export neither. A caller of `dlvsym` names a version itself. The other symbol marks
        // the start of the hook's own table.
        for unexpected in ["dlvsym", "__start_xpu_top_symbols"] {
            assert!(!names.lines().any(|name| name == unexpected), "{unexpected}: {names}");
        }
        for name in names.lines() {
            let name = name.split('@').next().unwrap();
            assert!(!FOREIGN.iter().any(|foreign| name.starts_with(foreign)), "{}: {name}", hook.display());
        }
        let asked = said("nm", &["-D", "--undefined-only", "-j"], hook);
        // A program may define these names itself.
        for name in asked.lines().filter_map(|name| name.split('@').next()) {
            assert!(
                !["open", "open64", "read", "send", "connect", "poll", "getpid"].contains(&name),
                "{name}"
            );
        }
        assert!(!asked.contains("_Unwind_") && !asked.contains("_Z") && !asked.contains("CXX"), "{asked}");
    });
}

/// An unwinder calls the personality routine of a frame. If the routine is not the hook's, another library's
/// would run for the hook's frame.
#[test]
fn no_frame_around_a_real_call_has_a_personality() {
    each_build(|hook| {
        let (frames, observing) = (Frames::of(hook), observing(hook));
        assert!(observing.len() > 200, "{}: {}", hook.display(), observing.len());
        assert!(frames.0.iter().any(|(_, _, augmentation)| augmentation.contains('P')), "others have one");
        for address in observing {
            let augmentation =
                frames.augmentation(address).unwrap_or_else(|| panic!("{address:#x} has no frame"));
            assert!(!augmentation.contains('P'), "{}: {address:#x}", hook.display());
        }
    });
}

/// The functions that make the real calls. A stub notes its caller, then jumps to one of them. The packages'
/// build has no symbol names, so the test finds the functions by this jump.
fn observing(hook: &Path) -> BTreeSet<u64> {
    let code = said("objdump", &["-d", "--no-show-raw-insn"], hook);
    let mut lines = code.lines();
    let mut all = BTreeSet::new();
    while lines.any(|line| line.contains("mov    %r10,%fs:")) {
        let target = lines.next().and_then(|line| line.split_once("jmp")).map(|(_, target)| target.trim());
        let address = target.and_then(|target| target.split(' ').next()).unwrap();
        all.insert(u64::from_str_radix(address, 16).unwrap());
    }
    all
}

/// The `.eh_frame` entry of each function: begin, end, and the augmentation of its CIE.
struct Frames(Vec<(u64, u64, String)>);

impl Frames {
    fn of(library: &Path) -> Self {
        let text = said("readelf", &["-W", "--debug-dump=frames"], library);
        let (mut common, mut entry, mut all) = (HashMap::new(), "", Vec::new());
        for line in text.lines() {
            let words: Vec<_> = line.split_ascii_whitespace().collect();
            match words[..] {
                [offset, _, _, "CIE"] => entry = offset,
                ["Augmentation:", augmentation] => {
                    common.insert(entry, augmentation.to_owned());
                }
                [_, _, _, "FDE", cie, place] => {
                    let (from, to) = place.strip_prefix("pc=").unwrap().split_once("..").unwrap();
                    let number = |text| u64::from_str_radix(text, 16).unwrap();
                    let augmentation = common[cie.strip_prefix("cie=").unwrap()].clone();
                    all.push((number(from), number(to), augmentation));
                }
                _ => {}
            }
        }
        Self(all)
    }

    fn augmentation(&self, address: u64) -> Option<&str> {
        let found = self.0.iter().find(|(from, to, _)| (*from..*to).contains(&address));
        found.map(|(_, _, augmentation)| augmentation.as_str())
    }
}
