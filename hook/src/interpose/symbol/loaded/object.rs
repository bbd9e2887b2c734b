//! A loaded object: its name, its functions, and the functions of other objects that it calls.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::{
    Name, Span,
    elf::{
        ADDRESSES, DYNAMIC, GLOBAL, GNU_HASH, HASH, INDEX, LOAD, NEEDED, NOT_DEFAULT, Needed, NeededName,
        RELATIVE, RELOCATIONS, RELOCATIONS_LENGTH, Relocation, STRINGS, STUBS, STUBS_LENGTH, SYMBOLS, Symbol,
        VERSIONS,
    },
};

use crate::process::{peek, thread_words::ThreadWords};

/// A loaded object, valid while [`super::each`] visits objects.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    pub(crate) span: Span,
    /// Its path, NUL-terminated; empty for the program itself.
    pub(crate) path: *const c_char,
    base: usize,
    symbols: *const Symbol,
    strings: *const c_char,
    gnu_hash: *const u32,
    hash: *const u32,
    versions: *const u16,
    needed: *const Needed,
    /// The relocations of data, then those of the procedure linkage table.
    relocations: [Relocations; 2],
}

/// A table: its address, and its length in bytes.
type Relocations = (*const Relocation, usize);

/// A function of another object that an object calls.
pub(in crate::interpose::symbol) struct Reference<'a> {
    pub(in crate::interpose::symbol) name: &'a CStr,
    /// The index of the required version; 0 if there are no versions.
    pub(in crate::interpose::symbol) version: u16,
    /// The current target of a call: before the first call, often the object's own stub.
    pub(in crate::interpose::symbol) to: usize,
}

/// Whether this address can be read, as far as is known: a sandbox may refuse the check.
#[cold]
fn is_mapped(address: usize) -> bool {
    let here = 0_usize;
    peek::word(address).is_some() || peek::word((&raw const here).expose_provenance()).is_none()
}

impl Object {
    /// `None` if the object has no symbol table, or is being unmapped by this thread.
    ///
    /// # Safety
    /// `info` is that of `dl_iterate_phdr`, during its callback, or is the same of an object that stays
    /// loaded.
    pub(super) unsafe fn of(info: &libc::dl_phdr_info) -> Option<Self> {
        // The loader unmaps an object before it removes it from its list. Other threads wait for the loader's
        // lock meanwhile, but a signal handler may interrupt this thread's `dlclose`.
        if ThreadWords::mine().closes.get() != 0 && !is_mapped(info.dlpi_phdr.addr()) {
            return None;
        }
        let base = info.dlpi_addr as usize;
        let (mut from, mut to, mut dynamic) = (usize::MAX, 0, 0);
        for place in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: the loader reports this many headers.
            let part = unsafe { &*info.dlpi_phdr.add(place) };
            let start = base.wrapping_add(part.p_vaddr as usize);
            match part.p_type {
                LOAD => {
                    from = from.min(start);
                    to = to.max(start.wrapping_add(part.p_memsz as usize));
                }
                DYNAMIC => dynamic = start,
                _ => {}
            }
        }
        let mut object = Self {
            span: Span { from, length: to.saturating_sub(from) },
            path: info.dlpi_name,
            base,
            symbols: ptr::null(),
            strings: ptr::null(),
            gnu_hash: ptr::null(),
            hash: ptr::null(),
            versions: ptr::null(),
            needed: ptr::null(),
            relocations: [(ptr::null(), 0); 2],
        };
        let mut relative = 0;
        let mut entry = ptr::with_exposed_provenance::<[usize; 2]>(dynamic);
        if entry.is_null() {
            return None;
        }
        loop {
            // SAFETY: the dynamic section is mapped, and ends with an entry of tag 0.
            let [tag, value] = unsafe { *entry };
            // The loader converts the offsets to addresses, except those of the vDSO.
            let at = if value < base { base.wrapping_add(value) } else { value };
            match tag {
                0 => break,
                HASH => object.hash = ptr::with_exposed_provenance(at),
                STRINGS => object.strings = ptr::with_exposed_provenance(at),
                SYMBOLS => object.symbols = ptr::with_exposed_provenance(at),
                GNU_HASH => object.gnu_hash = ptr::with_exposed_provenance(at),
                VERSIONS => object.versions = ptr::with_exposed_provenance(at),
                NEEDED => object.needed = ptr::with_exposed_provenance(at),
                RELOCATIONS => object.relocations[0].0 = ptr::with_exposed_provenance(at),
                RELOCATIONS_LENGTH => object.relocations[0].1 = value,
                RELATIVE => relative = value,
                STUBS => object.relocations[1].0 = ptr::with_exposed_provenance(at),
                STUBS_LENGTH => object.relocations[1].1 = value,
                _ => {}
            }
            // SAFETY: it was not the last.
            entry = unsafe { entry.add(1) };
        }
        let [(table, length), _] = &mut object.relocations;
        *table = table.wrapping_add(relative);
        *length = length.saturating_sub(relative * size_of::<Relocation>());
        (!object.symbols.is_null() && !object.strings.is_null()).then_some(object)
    }

    /// The last part of its path.
    pub(crate) fn file_name(&self) -> &[u8] {
        self.part_of_path(0)
    }

    /// The part before that.
    pub(crate) fn folder_name(&self) -> &[u8] {
        self.part_of_path(1)
    }

    fn part_of_path(&self, place: usize) -> &[u8] {
        // SAFETY: the loader's paths are NUL-terminated, and stay valid while `each` visits the object.
        let path = if self.path.is_null() { c"" } else { unsafe { CStr::from_ptr(self.path) } };
        path.to_bytes().rsplit(|&byte| byte == b'/').nth(place).unwrap_or_default()
    }

    /// The offset of an address in the object, in the units of its symbols.
    pub(crate) fn offset_of(&self, address: usize) -> Option<usize> {
        self.span.contains(address).then(|| address.wrapping_sub(self.base))
    }

    /// The address of the function or variable of this name that the object exports as its default version.
    pub(crate) fn find(&self, name: &Name<'_>) -> Option<usize> {
        // SAFETY: this is the index of a symbol.
        self.index_of(name).map(|index| unsafe { self.base.wrapping_add((*self.symbols.add(index)).value) })
    }

    /// Whether its definition of this name has no version: the loader accepts such a definition for any
    /// requested version.
    pub(crate) fn is_for_any_version(&self, name: &Name<'_>) -> bool {
        let Some(index) = self.index_of(name) else { return false };
        // SAFETY: if there are versions, there is one for each symbol.
        self.versions.is_null() || unsafe { *self.versions.add(index) } & INDEX <= GLOBAL
    }

    fn index_of(&self, name: &Name<'_>) -> Option<usize> {
        // SAFETY: the tables are mapped while `each` visits the object, and have the layout of the ELF
        // specification.
        unsafe {
            if !self.gnu_hash.is_null() {
                return self.index_by_gnu_hash(name);
            }
            if self.hash.is_null() {
                return None;
            }
            // `nbucket`, then `nchain`, which is the number of symbols.
            let count = *self.hash.add(1) as usize;
            (1..count).find(|&index| self.defines(index, name))
        }
    }

    unsafe fn index_by_gnu_hash(&self, name: &Name<'_>) -> Option<usize> {
        const BITS: u32 = usize::BITS;
        // SAFETY: as in `find`. A header of four words, the filter, the buckets, then a chain for each.
        unsafe {
            let [buckets, first, words, shift] = *self.gnu_hash.cast::<[u32; 4]>();
            if buckets == 0 || words == 0 {
                return None;
            }
            // The table is aligned for the words of the filter, and so is the filter.
            let filter = self.gnu_hash.add(4).cast::<c_void>().cast::<usize>();
            let word = *filter.add((name.hash / BITS % words) as usize);
            let mask = 1_usize << (name.hash % BITS) | 1_usize << ((name.hash >> shift) % BITS);
            if word & mask != mask {
                return None;
            }
            let bucket = filter.add(words as usize).cast::<u32>();
            let chain = bucket.add(buckets as usize);
            let mut index = *bucket.add((name.hash % buckets) as usize);
            while index >= first {
                let hash = *chain.add((index - first) as usize);
                if hash | 1 == name.hash | 1 && self.defines(index as usize, name) {
                    return Some(index as usize);
                }
                if hash & 1 != 0 {
                    break;
                }
                index += 1;
            }
            None
        }
    }

    unsafe fn defines(&self, index: usize, name: &Name<'_>) -> bool {
        /// `STT_NOTYPE`, `STT_OBJECT`, `STT_FUNC`
        const KINDS: [u8; 3] = [0, 1, 2];
        /// `STB_GLOBAL`, `STB_WEAK`, `STB_GNU_UNIQUE`
        const FOR_OTHERS: [u8; 3] = [1, 2, 10];
        // SAFETY: as in `find`.
        unsafe {
            let symbol = &*self.symbols.add(index);
            let fits = symbol.section != 0
                && KINDS.contains(&(symbol.info & 15))
                && FOR_OTHERS.contains(&(symbol.info >> 4))
                && CStr::from_ptr(self.strings.add(symbol.name as usize)) == name.text;
            let version = if self.versions.is_null() { GLOBAL } else { *self.versions.add(index) };
            fits && version & NOT_DEFAULT == 0 && version != 0
        }
    }

    /// Visits the functions of other objects that this object calls, until `look` returns `true`.
    pub(in crate::interpose::symbol) fn references<'a>(
        &'a self,
        mut look: impl FnMut(Reference<'a>) -> bool,
    ) {
        for (table, length) in self.relocations {
            for place in 0..length / size_of::<Relocation>() {
                // SAFETY: the tables are mapped while `each` visits the object, and have the layout of the
                // ELF specification.
                unsafe {
                    let Relocation { offset, info, .. } = &*table.add(place);
                    let (index, slot) = ((info >> 32) as usize, self.base.wrapping_add(*offset));
                    if !ADDRESSES.contains(&(*info as u32))
                        || index == 0
                        || !self.span.contains(slot)
                        || !slot.is_multiple_of(size_of::<usize>())
                    {
                        continue;
                    }
                    let name = CStr::from_ptr(self.strings.add((*self.symbols.add(index)).name as usize));
                    let version = if self.versions.is_null() { 0 } else { *self.versions.add(index) & INDEX };
                    // The loader may write the slot meanwhile.
                    let to = AtomicUsize::from_ptr(ptr::with_exposed_provenance_mut(slot)).load(Relaxed);
                    if look(Reference { name, version, to }) {
                        return;
                    }
                }
            }
        }
    }

    /// The version of this function that the object requires; NULL if it requires none, or does not use the
    /// function.
    pub(crate) fn version_wanted(&self, name: &Name<'_>) -> *const c_char {
        let Some(index) = self.version_index(name).filter(|_| !self.needed.is_null()) else {
            return ptr::null();
        };
        // SAFETY: as in `find`.
        unsafe {
            let mut file = self.needed;
            loop {
                let mut entry = file.byte_add((*file).names as usize).cast::<NeededName>();
                for _ in 0..(*file).count {
                    if (*entry).index & INDEX == index {
                        return self.strings.add((*entry).name as usize);
                    }
                    entry = entry.byte_add((*entry).next as usize);
                }
                if (*file).next == 0 {
                    return ptr::null();
                }
                file = file.byte_add((*file).next as usize);
            }
        }
    }

    /// The index of that version.
    pub(in crate::interpose::symbol) fn version_index(&self, name: &Name<'_>) -> Option<u16> {
        if self.versions.is_null() || self.gnu_hash.is_null() {
            return None;
        }
        // SAFETY: as in `find`. Undefined symbols come before all hashed ones.
        unsafe {
            let count = *self.gnu_hash.add(1) as usize;
            let wanted = (1..count).find(|&index| {
                let symbol = &*self.symbols.add(index);
                symbol.section == 0 && CStr::from_ptr(self.strings.add(symbol.name as usize)) == name.text
            });
            wanted.map(|index| *self.versions.add(index) & INDEX)
        }
    }
}
