//! Finds the kernels on the GPUs of a process in a core dump that CUDA's driver wrote.
//!
//! The file is an ELF file. Its tables are sections of types above `SHT_LOUSER`, with rows of `sh_entsize`
//! bytes, to which newer drivers append fields. `sh_link` names a table's parent section, and `sh_info` the
//! row of that section to which the table belongs. For the layouts, see `cudacoredump.h` of the CUDA toolkit.

use std::collections::{BTreeMap, BTreeSet};

use object::{
    LittleEndian, Object as _, ObjectSymbol as _, SymbolKind,
    elf::{FileHeader64, SectionHeader64},
    read::elf::{FileHeader as _, SectionHeader as _},
};
use xpu_wire::frame::{kernel_block, kernel_extent, kernel_size};

/// `SHT_LOUSER` + n.
const RELOCATED_ELF_IMAGE: u32 = 0x8000_0007;
const DEVICES: u32 = 0x8000_0009;
const SMS: u32 = 0x8000_000b;
const GRIDS: u32 = 0x8000_000c;
const BLOCKS: u32 = 0x8000_000d;
const WARPS: u32 = 0x8000_000e;
const LANES: u32 = 0x8000_000f;

/// Largest number of rows of one type that are read: a GPU has no more lanes.
const MOST: usize = 1 << 20;

/// A kernel that was on a GPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kernel {
    pub device: u32,
    /// The demangled name; `None` if no loaded module has it.
    pub name: Option<String>,
    /// Its blocks, and the threads of a block. Unknown if all its blocks had ended.
    pub size: Option<([u32; 3], [u32; 3])>,
    /// Number of blocks that were on multiprocessors, and the number of those multiprocessors.
    pub blocks: u32,
    pub sms: u32,
    /// The exception that stopped the kernel.
    pub exception: Option<Exception>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exception {
    /// `illegal address`
    pub error: String,
    /// Where it occurred. Unknown if this block had ended before the core dump.
    pub block: Option<[u32; 3]>,
}

impl Kernel {
    /// `illegal address in block 1,0,0`
    pub(super) fn stopped_by(&self) -> Option<String> {
        let Exception { error, block } = self.exception.as_ref()?;
        Some(format!("{error}{}", kernel_block(*block)))
    }

    pub(super) fn sized(&self) -> Option<String> {
        self.size.map(|(grid, block)| kernel_size(grid, block))
    }

    pub(super) fn extent(&self) -> String {
        kernel_extent(self.blocks, self.sms)
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CoreError {
    #[error("it is no core dump of a GPU: {0}")]
    Elf(#[from] object::read::Error),
    #[error("it is no core dump of a GPU: it has no table of devices")]
    NoDevices,
}

type Header = FileHeader64<LittleEndian>;
type Section = SectionHeader64<LittleEndian>;

/// The tables of the file. There may be several of one type.
struct Core<'data> {
    bytes: &'data [u8],
    sections: &'data [Section],
}

/// A row, and its place: the section, and the number in it.
struct Row<'data> {
    bytes: &'data [u8],
    place: (usize, usize),
    /// The place of the row that this row belongs to.
    parent: (usize, usize),
}

impl Row<'_> {
    /// A field of the row; 0 if the row ends before the field.
    fn u32(&self, at: usize) -> u32 {
        self.bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
    }

    fn u64(&self, at: usize) -> u64 {
        self.bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    }

    fn triple(&self, at: usize) -> [u32; 3] {
        [self.u32(at), self.u32(at + 4), self.u32(at + 8)]
    }
}

impl<'data> Core<'data> {
    fn read(bytes: &'data [u8]) -> Result<Self, CoreError> {
        let header = Header::parse(bytes)?;
        let sections = header.section_headers(LittleEndian, bytes)?;
        Ok(Self { bytes, sections })
    }

    fn of(&self, kind: u32) -> impl Iterator<Item = (usize, &'data Section)> {
        let is_of = move |section: &Section| section.sh_type.get(LittleEndian).0 == kind;
        self.sections.iter().enumerate().filter(move |(_, section)| is_of(section))
    }

    fn content(&self, section: &Section) -> &'data [u8] {
        section.data(LittleEndian, self.bytes).unwrap_or_default()
    }

    fn rows(&self, kind: u32) -> impl Iterator<Item = Row<'data>> {
        let rows = self.of(kind).flat_map(|(index, section)| {
            let size = section.sh_entsize.get(LittleEndian).max(8) as usize;
            let parent =
                (section.sh_link.get(LittleEndian) as usize, section.sh_info.get(LittleEndian) as usize);
            let rows = self.content(section).chunks_exact(size).enumerate();
            rows.map(move |(number, bytes)| Row { bytes, place: (index, number), parent })
        });
        rows.take(MOST)
    }
}

/// The blocks of a grid that were on multiprocessors, and the rows of those multiprocessors.
#[derive(Default)]
struct Extent {
    blocks: u32,
    sms: BTreeSet<(usize, usize)>,
}

/// The kernels that were on GPUs, those with an exception first.
pub(super) fn kernels(bytes: &[u8]) -> Result<Vec<Kernel>, CoreError> {
    let core = Core::read(bytes)?;
    let devices: BTreeMap<_, _> = core.rows(DEVICES).map(|row| (row.place, row.u32(24))).collect();
    if devices.is_empty() {
        return Err(CoreError::NoDevices);
    }
    let device_of_sm: BTreeMap<_, _> =
        core.rows(SMS).filter_map(|row| Some((row.place, *devices.get(&row.parent)?))).collect();
    // The places of the blocks, by device and grid.
    let mut on: BTreeMap<(u32, u64), Extent> = BTreeMap::new();
    let mut blocks = BTreeMap::new();
    for row in core.rows(BLOCKS) {
        let Some(&device) = device_of_sm.get(&row.parent) else { continue };
        let extent = on.entry((device, row.u64(0))).or_default();
        extent.blocks += 1;
        extent.sms.insert(row.parent);
        blocks.insert(row.place, (device, row.u64(0), row.triple(8)));
    }
    let mut exceptions = BTreeMap::new();
    let warps: BTreeMap<_, _> = core.rows(WARPS).map(|row| (row.place, row.parent)).collect();
    for row in core.rows(LANES) {
        let code = row.u32(32);
        let block = warps.get(&row.parent).and_then(|block| blocks.get(block));
        if let Some(&(device, grid, index)) = block.filter(|_| code != 0) {
            let exception = || Exception { error: error(code), block: Some(index) };
            exceptions.entry((device, grid)).or_insert_with(exception);
        }
    }
    let modules: Vec<_> = core.of(RELOCATED_ELF_IMAGE).map(|(_, section)| core.content(section)).collect();
    let functions = Functions::of(&modules);
    let mut kernels: Vec<_> = core
        .rows(GRIDS)
        .filter_map(|row| {
            let device = *devices.get(&row.parent)?;
            let grid = (device, row.u64(0));
            let extent = on.get(&grid)?;
            Some(Kernel {
                device,
                name: [row.u64(24), row.u64(16)].iter().find_map(|&entry| functions.at(entry).map(demangled)),
                size: Some((row.triple(72), row.triple(84))),
                blocks: extent.blocks,
                sms: u32::try_from(extent.sms.len()).unwrap_or(u32::MAX),
                exception: exceptions.get(&grid).cloned(),
            })
        })
        .collect();
    for stop in stops(&core, &device_of_sm) {
        stop.assign(&functions, &mut kernels);
    }
    kernels
        .sort_by_key(|kernel| (kernel.device, kernel.exception.is_none(), std::cmp::Reverse(kernel.blocks)));
    Ok(kernels)
}

/// An exception that a multiprocessor reports. It remains when the blocks that caused it have ended.
struct Stop {
    device: u32,
    code: u32,
    /// The address of the instruction.
    at: u64,
}

/// One for each device, code and address.
fn stops(core: &Core<'_>, device_of_sm: &BTreeMap<(usize, usize), u32>) -> Vec<Stop> {
    let mut found = BTreeSet::new();
    for row in core.rows(SMS) {
        let (code, has_address, at) = (row.u32(8), row.u32(12) == 1, row.u64(16));
        if let Some(&device) = device_of_sm.get(&row.place).filter(|_| code != 0 && has_address) {
            found.insert((device, code, at));
        }
    }
    found.into_iter().map(|(device, code, at)| Stop { device, code, at }).collect()
}

impl Stop {
    /// Adds it to the kernel whose function has the instruction, unless a block of a kernel on this device
    /// has an exception.
    fn assign(self, functions: &Functions<'_>, kernels: &mut Vec<Kernel>) {
        let mut here: Vec<_> = kernels.iter_mut().filter(|kernel| kernel.device == self.device).collect();
        if here.iter().any(|kernel| kernel.exception.is_some()) {
            return;
        }
        let name = functions.with(self.at).map(demangled);
        let exception = Some(Exception { error: error(self.code), block: None });
        here.retain(|kernel| name.is_some() && kernel.name == name);
        if let [kernel] = &mut here[..] {
            kernel.exception = exception;
        } else {
            // Its blocks have ended, the instruction is in a function that it calls, or it is one of several grids.
            let (device, size) = (self.device, None);
            kernels.push(Kernel { device, name, size, blocks: 0, sms: 0, exception });
        }
    }
}

/// Clears the exceptions of lanes.
#[cfg(test)]
pub(super) fn forget_lanes(bytes: &mut [u8]) {
    let clear = |core: &Core<'_>, section: &Section| {
        let (from, size) = (section.sh_offset.get(LittleEndian), section.sh_entsize.get(LittleEndian));
        let rows = core.content(section).len() as u64 / size;
        (0..rows).map(|row| (from + row * size + 32) as usize).collect::<Vec<_>>()
    };
    let core = Core::read(bytes).unwrap();
    let places: Vec<_> = core.of(LANES).flat_map(|(_, section)| clear(&core, section)).collect();
    for at in places {
        bytes[at..at + 4].fill(0);
    }
}

/// Makes the tables of blocks empty.
#[cfg(test)]
pub(super) fn forget_blocks(bytes: &mut [u8]) {
    let table = Header::parse(&*bytes).unwrap().e_shoff.get(LittleEndian) as usize;
    let core = Core::read(bytes).unwrap();
    let blocks: Vec<_> = core.of(BLOCKS).map(|(index, _)| table + index * size_of::<Section>()).collect();
    for at in blocks {
        // `sh_size`
        bytes[at + 32..at + 40].fill(0);
    }
}

/// Names and sizes of functions by their addresses, in all modules.
struct Functions<'data>(BTreeMap<u64, (&'data str, u64)>);

impl<'data> Functions<'data> {
    fn of(modules: &[&'data [u8]]) -> Self {
        let mut functions = BTreeMap::new();
        for module in modules.iter().filter_map(|module| object::File::parse(*module).ok()) {
            let symbols = module.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
            let named =
                symbols.filter_map(|symbol| Some((symbol.address(), (symbol.name().ok()?, symbol.size()))));
            functions.extend(named);
        }
        Self(functions)
    }

    /// The function that begins at this address.
    fn at(&self, entry: u64) -> Option<&'data str> {
        self.0.get(&entry).map(|&(name, _)| name)
    }

    /// The function that contains this instruction.
    fn with(&self, instruction: u64) -> Option<&'data str> {
        let (entry, &(name, size)) = self.0.range(..=instruction).next_back()?;
        (instruction - entry < size).then_some(name)
    }
}

fn demangled(name: &str) -> String {
    // Names with template parameters are long enough without function parameters.
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let symbol = cpp_demangle::Symbol::new(name).ok();
    let demangled = symbol.and_then(|symbol| symbol.demangle_with_options(&options).ok());
    demangled.map_or_else(|| name.to_owned(), |name| name.replace("(anonymous namespace)::", ""))
}

/// `CUDBGException_t` of `cudadebugger.h`.
fn error(code: u32) -> String {
    let name = match code {
        1 | 10 | 14 => "illegal address",
        2 | 3 | 9 => "stack overflow",
        4 => "illegal instruction",
        5 => "address out of range",
        6 | 11 => "misaligned address",
        7 => "invalid address space",
        8 => "invalid program counter",
        12 => "assertion failed",
        13 => "failed system call",
        15 | 16 => "invalid atomic operation",
        17 => "address outside of the cluster",
        18 => "block of the cluster is gone",
        19 => "stack overwritten",
        _ => return format!("exception {code}"),
    };
    name.to_owned()
}
