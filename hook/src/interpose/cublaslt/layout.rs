//! The properties of a layout's matrix. A query to cuBLASLt costs 12 ns for each of four properties, so a
//! layout that equals an earlier one byte for byte reuses the earlier results.

use std::{
    cell::Cell,
    ffi::{c_int, c_void},
};

use cudarc::cublaslt::sys::cublasLtMatrixLayout_t;

use super::CUBLASLT;
use crate::{interpose::symbol::foreign, process::memory};

/// `cublasLtMatrixLayoutAttribute_t`
const TYPE: c_int = 0;
const ROWS: c_int = 2;
const COLUMNS: c_int = 3;
const BATCH: c_int = 5;

foreign! {
    fn cublasLtMatrixLayoutGetAttribute(
        layout: cublasLtMatrixLayout_t, attribute: c_int, value: *mut c_void, size: usize, written: *mut usize,
    ) -> c_int in CUBLASLT
}

/// Rows and columns are those of the matrix, whatever the order of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) rows: u64,
    pub(super) columns: u64,
    pub(super) batch: c_int,
    pub(super) datatype: c_int,
}

/// A layout in memory: `cublasLtMatrixLayoutOpaque_t` is a public struct of 8 words, 14 since 13.1. All
/// properties used here are in the first 8.
type Words = [u64; 8];

/// Layouts kept for each thread: more than a step of a transformer uses.
const REMEMBERED: usize = 64;

/// A thread's known layouts. They are in its lane, not in thread-local storage, which takes space on the
/// stack of every thread of the program, including those that never call the hook.
#[derive(Debug)]
pub(crate) struct Layouts(Box<[Cell<(Words, Layout)>]>);

impl Layouts {
    pub(crate) const MEMORY: usize = REMEMBERED * size_of::<Cell<(Words, Layout)>>();

    /// `None` if there is no memory for it. No real layout is all zeros.
    pub(crate) fn new() -> Option<Self> {
        let nothing = Layout { rows: 0, columns: 0, batch: 0, datatype: 0 };
        memory::slice(REMEMBERED, || Some(Cell::new(([0; 8], nothing)))).map(Self)
    }

    /// `None` if there is no layout, or if it is not that of a plain matrix.
    #[inline]
    pub(super) fn read(&self, layout: cublasLtMatrixLayout_t) -> Option<Layout> {
        if layout.is_null() {
            return None;
        }
        // SAFETY: the program passes this layout to cuBLASLt; it has at least this length.
        let words = unsafe { layout.cast::<Words>().read() };
        let place = &self.0[place_of(&words)];
        let (remembered, is) = place.get();
        if are_alike(&remembered, &words) {
            return Some(is);
        }
        let asked = Layout::ask(layout)?;
        place.set((words, asked));
        Some(asked)
    }
}

impl Layout {
    #[cold]
    fn ask(layout: cublasLtMatrixLayout_t) -> Option<Self> {
        Some(Self {
            rows: attribute(layout, ROWS)?,
            columns: attribute(layout, COLUMNS)?,
            batch: attribute(layout, BATCH)?,
            datatype: attribute(layout, TYPE)?,
        })
    }
}

/// Whether the words are equal. `==` would call `bcmp`.
#[inline]
fn are_alike(one: &Words, other: &Words) -> bool {
    one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

/// The index for these words. The multiplications are independent of each other; a chain of eight would take
/// three times as long.
#[inline]
fn place_of(words: &Words) -> usize {
    let factor = |n: usize| 0x9e37_79b9_7f4a_7c15_u64.rotate_left(7 * n as u32) | 1;
    let mixed = words.iter().enumerate().fold(0, |mixed, (n, word)| mixed ^ word.wrapping_mul(factor(n)));
    (mixed.wrapping_mul(factor(8)) >> 58) as usize % REMEMBERED
}

/// An attribute; all those used here are integers of 4 or 8 bytes.
fn attribute<T: Copy + Default>(layout: cublasLtMatrixLayout_t, attribute: c_int) -> Option<T> {
    let (mut value, mut written) = (T::default(), 0);
    let place = (&raw mut value).cast();
    // SAFETY: the layout is the one the program calls with; place, size and written describe live locals.
    let rc = unsafe {
        cublasLtMatrixLayoutGetAttribute(layout, attribute, place, size_of::<T>(), &raw mut written)
    };
    (rc == Some(0)).then_some(value)
}
