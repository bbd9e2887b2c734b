//! Core dumps of the GPUs, written when a program writes to a pipe. The file has the tables of CUDA's
//! `cudacoredump.h`, and modules with the names of the kernels on the devices. Then the process ends, as it
//! usually does on a real GPU.

use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::Once;
use std::{env, fs, process};

use simgpu_engine::resident::{self, Resident};
use simgpu_engine::worker;

const RELOCATED_ELF_IMAGE: u32 = 0x8000_0007;
const DEVICES: u32 = 0x8000_0009;
const SMS: u32 = 0x8000_000b;
const GRIDS: u32 = 0x8000_000c;
const BLOCKS: u32 = 0x8000_000d;

const CUDA: u16 = 190;
const CORE: u16 = 4;
const EXECUTABLE: u16 = 2;
const SYMBOLS: u32 = 2;
const STRINGS: u32 = 3;

static PREPARED: Once = Once::new();

/// Creates the pipe if the environment asks for it. Called at the first call of the process.
pub(crate) fn prepare() {
    PREPARED.call_once(|| {
        let is_set = |name: &str, to: &str| env::var_os(name).is_some_and(|value| value == to);
        // Without core dumps at exceptions, driver 580 makes no pipe.
        let is_wanted = is_set("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1")
            && !is_set("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "0");
        let named =
            |name| Some(PathBuf::from(env::var(name).ok()?.replace("%p", &process::id().to_string())));
        let (Some(pipe), Some(file)) = (named("CUDA_COREDUMP_PIPE"), named("CUDA_COREDUMP_FILE")) else {
            return;
        };
        let Ok(name) = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()) else { return };
        // SAFETY: the name ends with NUL.
        if !is_wanted || unsafe { libc::mkfifo(name.as_ptr(), 0o640) } != 0 {
            return;
        }
        resident::note_from_now_on();
        // Without the thread nobody reads the pipe, and writing to it fails.
        let _ = worker::spawn("simgpu-core", move || {
            // Blocks until another program has written to the pipe and closed it.
            if fs::read(&pipe).is_ok() && fs::write(&file, of(&resident::now())).is_ok() {
                process::abort();
            }
        });
    });
}

/// The content of the core dump.
fn of(residents: &[Resident]) -> Vec<u8> {
    let devices: Vec<_> = (0..=residents.iter().map(|one| one.device).max().unwrap_or(0)).collect();
    let row = |words: &[(usize, u32)], size: usize| {
        let mut row = vec![0; size];
        for (at, word) in words {
            row[*at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        row
    };
    let table =
        |kind, link, info, size, rows: Vec<Vec<u8>>| Section { kind, link, info, size, bytes: rows.concat() };
    let mut sections = vec![table(
        DEVICES,
        0,
        0,
        88,
        devices.iter().map(|&device| row(&[(24, device as u32), (36, 132)], 88)).collect(),
    )];
    let mut images = Vec::new();
    for &device in &devices {
        let own: Vec<_> = residents.iter().filter(|one| one.device == device).collect();
        let on_sms = sections.len() as u32 + 1;
        sections.push(table(SMS, 1, device as u32, 8, (0..132).map(|sm| row(&[(0, sm)], 8)).collect()));
        let mut grids = Vec::new();
        for (number, resident) in own.iter().enumerate() {
            let (grid, address) = (number as u32 + 1, 0x1000 * (images.len() as u32 + 1));
            // One block of 32 threads.
            grids.push(row(
                &[(0, grid), (24, address), (64, 2), (72, 1), (76, 1), (80, 1), (84, 32), (88, 1), (92, 1)],
                104,
            ));
            sections.push(table(BLOCKS, on_sms, number as u32, 24, vec![row(&[(0, grid)], 24)]));
            // SAFETY: a C string that is never freed.
            let name = unsafe { CStr::from_ptr(resident.name as *const _) };
            images.push(Section {
                kind: RELOCATED_ELF_IMAGE,
                link: 0,
                info: 0,
                size: 0,
                bytes: module(name, address),
            });
        }
        sections.push(table(GRIDS, 1, device as u32, 104, grids));
    }
    sections.extend(images);
    elf(CORE, &sections)
}

/// A module with one function.
fn module(name: &CStr, address: u32) -> Vec<u8> {
    let mut symbol = [0; 24];
    symbol[0] = 1;
    // A global function, in section 1.
    (symbol[4], symbol[6]) = (0x12, 1);
    symbol[8..12].copy_from_slice(&address.to_le_bytes());
    let strings = [b"\0", name.to_bytes_with_nul()].concat();
    let text = Section { kind: 1, link: 0, info: 0, size: 0, bytes: vec![0; 16] };
    let symbols = Section { kind: SYMBOLS, link: 3, info: 1, size: 24, bytes: [[0; 24], symbol].concat() };
    elf(EXECUTABLE, &[text, symbols, Section { kind: STRINGS, link: 0, info: 0, size: 0, bytes: strings }])
}

struct Section {
    kind: u32,
    link: u32,
    info: u32,
    /// The size of a row.
    size: u64,
    bytes: Vec<u8>,
}

/// An ELF file. Section 0 is empty, the sections have no names, and the last section is that of the names.
fn elf(kind: u16, sections: &[Section]) -> Vec<u8> {
    let mut file = vec![0; 64];
    let mut headers = vec![0; 64];
    let names = Section { kind: STRINGS, link: 0, info: 0, size: 0, bytes: vec![0] };
    for section in sections.iter().chain([&names]) {
        let at = file.len() as u64;
        file.extend_from_slice(&section.bytes);
        file.resize(file.len().next_multiple_of(8), 0);
        headers.extend([0, section.kind].map(u32::to_le_bytes).concat());
        headers.extend([0, 0, at, section.bytes.len() as u64].map(u64::to_le_bytes).concat());
        headers.extend([section.link, section.info].map(u32::to_le_bytes).concat());
        headers.extend([8, section.size].map(u64::to_le_bytes).concat());
    }
    let at = file.len() as u64;
    file.extend_from_slice(&headers);
    // 64 bits, little endian.
    file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &kind.to_le_bytes());
    put(18, &CUDA.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    put(40, &at.to_le_bytes());
    put(52, &64_u16.to_le_bytes());
    put(58, &64_u16.to_le_bytes());
    put(60, &(sections.len() as u16 + 2).to_le_bytes());
    put(62, &(sections.len() as u16 + 1).to_le_bytes());
    file
}
