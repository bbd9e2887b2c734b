//! The attributes of a descriptor: numbered byte strings of fixed length.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::Mutex;

use simgpu_engine::lock;

use crate::put::put;
use simgpu_engine::cublas::Status;

/// The attributes of a kind of descriptor, with their sizes in bytes.
pub(crate) type Table = &'static [(c_int, usize)];

pub(crate) const MATMUL_COMPUTE_TYPE: c_int = 0;
pub(crate) const MATMUL_SCALE_TYPE: c_int = 1;
pub(crate) const MATMUL_TRANSA: c_int = 3;
pub(crate) const MATMUL_TRANSB: c_int = 4;
pub(crate) const MATMUL_EPILOGUE: c_int = 7;
/// The attributes above, and pointer mode (2), transc, fill mode (6), bias pointer and stride, auxiliary
/// pointer, leading dimension and stride (11 to 13), alpha stride, SM target (15), scale pointers (17 to 21),
/// the auxiliary output's type and scales (22 to 24), fast accumulation, bias type (26).
pub(crate) const MATMUL: Table = &[
    (MATMUL_COMPUTE_TYPE, 4),
    (MATMUL_SCALE_TYPE, 4),
    (2, 4),
    (MATMUL_TRANSA, 4),
    (MATMUL_TRANSB, 4),
    (5, 4),
    (6, 4),
    (MATMUL_EPILOGUE, 4),
    (8, 8),
    (10, 8),
    (11, 8),
    (12, 8),
    (13, 8),
    (14, 8),
    (15, 4),
    (17, 8),
    (18, 8),
    (19, 8),
    (20, 8),
    (21, 8),
    (22, 4),
    (23, 8),
    (24, 8),
    (25, 1),
    (26, 4),
];

/// Search mode, workspace bytes (1), reduction scheme, alignments of A to D (5 to 8), waves, implementation mask.
pub(crate) const PREFERENCE: Table =
    &[(0, 4), (1, 8), (3, 4), (5, 4), (6, 4), (7, 4), (8, 4), (9, 4), (12, 8)];

#[derive(Debug)]
pub(crate) struct Attributes {
    table: Table,
    values: Mutex<BTreeMap<c_int, Vec<u8>>>,
}

impl Attributes {
    pub(crate) fn new(table: Table) -> Self {
        Self { table, values: Mutex::default() }
    }

    pub(crate) fn with(self, name: c_int, value: &[u8]) -> Self {
        lock(&self.values).insert(name, value.to_vec());
        self
    }

    fn size(&self, name: c_int) -> Result<usize, Status> {
        self.table.iter().find(|(known, _)| *known == name).map(|(_, size)| *size).ok_or(Status::InvalidValue)
    }

    /// The bytes that were set, or zeros in the attribute's size.
    fn bytes(&self, name: c_int) -> Result<Vec<u8>, Status> {
        let size = self.size(name)?;
        Ok(lock(&self.values).get(&name).cloned().unwrap_or_else(|| vec![0; size]))
    }

    /// The attribute as a number; a negative one counts as 0.
    pub(crate) fn number(&self, name: c_int) -> Result<u64, Status> {
        let bytes = self.bytes(name)?;
        let number = match <[u8; 8]>::try_from(bytes.as_slice()) {
            Ok(eight) => i64::from_ne_bytes(eight),
            Err(_) => bytes.first_chunk::<4>().map_or(0, |four| i64::from(i32::from_ne_bytes(*four))),
        };
        Ok(u64::try_from(number).unwrap_or(0))
    }

    /// # Safety
    /// `from` must be NULL or readable for `bytes`.
    pub(crate) unsafe fn set(&self, name: c_int, from: *const c_void, bytes: usize) -> Result<(), Status> {
        if from.is_null() || bytes != self.size(name)? {
            return Err(Status::InvalidValue);
        }
        // SAFETY: this function's own condition, and `from` is not NULL.
        let value = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.to_vec();
        lock(&self.values).insert(name, value);
        Ok(())
    }

    /// If `free` is 0, only returns the needed size.
    ///
    /// # Safety
    /// `to` must be NULL or writable for `free` bytes, `written` NULL or writable.
    pub(crate) unsafe fn get(
        &self,
        name: c_int,
        to: *mut c_void,
        free: usize,
        written: *mut usize,
    ) -> Result<(), Status> {
        let value = self.bytes(name)?;
        if free == 0 {
            // SAFETY: this function's own condition.
            return unsafe { put(written, value.len()) };
        }
        if to.is_null() || free < value.len() {
            return Err(Status::InvalidValue);
        }
        // SAFETY: this function's own condition; `value` is no longer than `free`.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), value.len()) };
        if !written.is_null() {
            // SAFETY: this function's own condition.
            unsafe { written.write(value.len()) };
        }
        Ok(())
    }
}
