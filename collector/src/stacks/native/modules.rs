//! Reads the mapped files of a process: their unwind tables and symbols.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    ops::{Deref, Range},
    os::unix::fs::MetadataExt as _,
    sync::Arc,
};

use framehop::{Module, ModuleSectionInfo, Unwinder as _, x86_64};
use memmap2::Mmap;
use object::{
    Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SegmentFlags, SymbolKind,
    elf::PF_X,
};
use xpu_wire::{frame::StackFrame, id::Pid};

use super::super::brief::brief;

/// The name of a function without a symbol. Its address would separate ranks that are in the same function.
pub(super) const UNNAMED: &str = "(unnamed)";

pub(super) type Unwinder = x86_64::UnwinderX86_64<Piece>;

/// A part of a mapped file.
pub(super) struct Piece {
    file: Arc<Mmap>,
    range: Range<usize>,
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.file.get(self.range.clone()).unwrap_or_default()
    }
}

/// A file with code, and its place in the process.
struct Loaded {
    path: String,
    code: Range<u64>,
    /// Difference from an address in the file to the address in the process.
    bias: u64,
    file: Arc<Mmap>,
}

pub(super) struct Modules {
    loaded: Vec<Loaded>,
}

impl Modules {
    /// The mapped files that can be read. Code that was generated at run time, or whose file is gone, has no
    /// frames.
    pub(super) fn of(pid: Pid) -> Self {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        Self { loaded: maps.lines().filter_map(|line| load(Some(pid), line)).collect() }
    }

    /// The mapped files of a process that has ended, from the lines of its `/proc/PID/maps`.
    pub(super) fn of_lines(maps: &str) -> Self {
        let lines = maps.lines().map(|line| line.trim_start_matches('\0'));
        Self { loaded: lines.filter_map(|line| load(None, line)).collect() }
    }

    pub(super) fn unwinder(&self) -> Unwinder {
        let mut unwinder = Unwinder::new();
        for loaded in &self.loaded {
            if let Some(sections) = loaded.sections() {
                let Loaded { path, code, bias, .. } = loaded;
                unwinder.add_module(Module::new(path.clone(), code.clone(), *bias, sections));
            }
        }
        unwinder
    }

    fn position(&self, address: u64) -> Option<usize> {
        self.loaded.iter().position(|loaded| loaded.code.contains(&address))
    }

    /// The address in its file, as the file's symbols give it.
    pub(super) fn offset(&self, address: u64) -> Option<u64> {
        Some(address.wrapping_sub(self.loaded[self.position(address)?].bias))
    }

    /// The frame of each address within a file. Symbols are searched once per file.
    pub(super) fn names(&self, addresses: impl Iterator<Item = u64>) -> HashMap<u64, StackFrame> {
        let mut by_file: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for address in addresses {
            if let Some(index) = self.position(address) {
                by_file.entry(index).or_default().push(address);
            }
        }
        let mut names = HashMap::new();
        for (index, mut addresses) in by_file {
            addresses.sort_unstable();
            addresses.dedup();
            self.loaded[index].name(&addresses, &mut names);
        }
        names
    }
}

/// A line of `/proc/PID/maps` (`proc_pid_maps(5)`), if code of a file is mapped there.
fn load(pid: Option<Pid>, line: &str) -> Option<Loaded> {
    let mut words = line.splitn(6, ' ');
    let (range, rights, offset) = (words.next()?, words.next()?, words.next()?);
    let (_device, inode, path) = (words.next()?, words.next()?, words.next()?.trim_start());
    if !rights.contains('x') || !path.starts_with('/') {
        return None;
    }
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-')?;
    let (start, end, offset) = (hexadecimal(start)?, hexadecimal(end)?, hexadecimal(offset)?);
    // Opened through the process, which may be in a container.
    let inside = pid.and_then(|pid| File::open(format!("/proc/{pid}/root{path}")).ok());
    let file = inside.or_else(|| File::open(path).ok())?;
    if file.metadata().ok()?.ino() != inode.parse::<u64>().ok()? {
        return None;
    }
    // SAFETY: truncating a loaded library ends the process that has loaded it, and also this process, which
    // serves only that reading.
    let file = Arc::new(unsafe { Mmap::map(&file) }.ok()?);
    let parsed = object::File::parse(&file[..]).ok()?;
    // The page at which one segment ends and the next begins is mapped for both segments.
    let segment = parsed.segments().find(|segment| {
        let (at, length) = segment.file_range();
        let code = matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags & PF_X == PF_X);
        code && (at & !0xfff..at.saturating_add(length)).contains(&offset)
    })?;
    let bias =
        start.wrapping_sub(offset).wrapping_sub(segment.address().wrapping_sub(segment.file_range().0));
    Some(Loaded { path: path.to_owned(), code: start..end, bias, file: Arc::clone(&file) })
}

impl Loaded {
    fn sections(&self) -> Option<Sections<'_>> {
        Some(Sections { parsed: object::File::parse(&self.file[..]).ok()?, file: &self.file })
    }

    fn name(&self, addresses: &[u64], names: &mut HashMap<u64, StackFrame>) {
        let mut found: HashMap<u64, &str> = HashMap::new();
        let parsed = object::File::parse(&self.file[..]).ok();
        for symbol in parsed.iter().flat_map(|file| file.symbols().chain(file.dynamic_symbols())) {
            let begin = symbol.address().wrapping_add(self.bias);
            let end = begin.saturating_add(symbol.size());
            if symbol.kind() != SymbolKind::Text || symbol.address() == 0 {
                continue;
            }
            let first = addresses.partition_point(|&address| address < begin);
            for &address in addresses[first..].iter().take_while(|&&address| address < end) {
                if let Ok(name) = symbol.name() {
                    found.entry(address).or_insert(name);
                }
            }
        }
        let file = brief(&self.path);
        for &address in addresses {
            let function = match found.get(&address) {
                Some(name) => brief(&plain(name)),
                None => UNNAMED.to_owned(),
            };
            names.insert(address, StackFrame { function, file: file.clone(), line: 0 });
        }
    }
}

/// A file's sections, for the unwinder.
struct Sections<'file> {
    parsed: object::File<'file>,
    file: &'file Arc<Mmap>,
}

impl Sections<'_> {
    fn section(&self, name: &[u8]) -> Option<impl object::ObjectSection<'_>> {
        self.parsed.section_by_name_bytes(name)
    }
}

impl ModuleSectionInfo<Piece> for Sections<'_> {
    fn base_svma(&self) -> u64 {
        0
    }

    fn section_svma_range(&mut self, name: &[u8]) -> Option<Range<u64>> {
        let section = self.section(name)?;
        Some(section.address()..section.address().checked_add(section.size())?)
    }

    fn section_data(&mut self, name: &[u8]) -> Option<Piece> {
        let (at, length) = self.section(name)?.file_range()?;
        let (at, length) = (usize::try_from(at).ok()?, usize::try_from(length).ok()?);
        Some(Piece { file: Arc::clone(self.file), range: at..at.checked_add(length)? })
    }
}

/// A function's name without its arguments.
fn plain(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let demangled =
        cpp_demangle::Symbol::new(name).ok().and_then(|symbol| symbol.demangle_with_options(&options).ok());
    demangled.unwrap_or_else(|| name.to_owned())
}
