//! The tables of an ELF object that the hook reads.

/// `Elf64_Rela`
#[repr(C)]
pub(super) struct Relocation {
    pub(super) offset: usize,
    /// The upper half is the symbol's index, the lower half the relocation's kind.
    pub(super) info: u64,
    pub(super) addend: isize,
}

/// `Elf64_Sym`
#[repr(C)]
pub(super) struct Symbol {
    pub(super) name: u32,
    pub(super) info: u8,
    pub(super) other: u8,
    pub(super) section: u16,
    pub(super) value: usize,
    pub(super) size: usize,
}

/// `Elf64_Verneed`
#[repr(C)]
pub(super) struct Needed {
    pub(super) version: u16,
    pub(super) count: u16,
    pub(super) file: u32,
    pub(super) names: u32,
    pub(super) next: u32,
}

/// `Elf64_Vernaux`
#[repr(C)]
pub(super) struct NeededName {
    pub(super) hash: u32,
    pub(super) flags: u16,
    pub(super) index: u16,
    pub(super) name: u32,
    pub(super) next: u32,
}

pub(super) const DYNAMIC: u32 = libc::PT_DYNAMIC;
pub(super) const LOAD: u32 = libc::PT_LOAD;

// Tags of the dynamic section (gabi, and the GNU extensions of elf.h).
pub(super) const HASH: usize = 4;
pub(super) const STRINGS: usize = 5;
pub(super) const SYMBOLS: usize = 6;
pub(super) const GNU_HASH: usize = 0x6fff_fef5;
pub(super) const VERSIONS: usize = 0x6fff_fff0;
pub(super) const NEEDED: usize = 0x6fff_fffe;
pub(super) const RELOCATIONS: usize = 7;
pub(super) const RELOCATIONS_LENGTH: usize = 8;
/// The number of relocations without a symbol, which come first.
pub(super) const RELATIVE: usize = 0x6fff_fff9;
pub(super) const STUBS: usize = 23;
pub(super) const STUBS_LENGTH: usize = 2;

/// `R_*_GLOB_DAT` and `R_*_JUMP_SLOT`: the loader writes the symbol's address to the place.
pub(super) const ADDRESSES: [u32; 2] = if cfg!(target_arch = "aarch64") { [1025, 1026] } else { [6, 7] };

/// A version's index in `.gnu.version`; the bit above marks a non-default version.
pub(super) const INDEX: u16 = 0x7fff;
pub(super) const NOT_DEFAULT: u16 = 0x8000;
/// `VER_NDX_GLOBAL`: exported without a version.
pub(super) const GLOBAL: u16 = 1;
