//! Element types of matrices and messages, read from the two numberings CUDA libraries use.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DataType {
    Float64,
    Float32,
    /// 32-bit storage multiplied in TensorFloat-32.
    Tf32,
    Float16,
    Bfloat16,
    Float8E4m3,
    Float8E5m2,
    Float4,
    Complex64,
    Complex128,
    Int64,
    Uint64,
    Int32,
    Uint32,
    Int8,
    Uint8,
    /// A type this version does not know, by the library's number.
    Other(u8),
}

const NAMED: [DataType; 16] = [
    DataType::Float64,
    DataType::Float32,
    DataType::Tf32,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Float8E4m3,
    DataType::Float8E5m2,
    DataType::Float4,
    DataType::Complex64,
    DataType::Complex128,
    DataType::Int64,
    DataType::Uint64,
    DataType::Int32,
    DataType::Uint32,
    DataType::Int8,
    DataType::Uint8,
];

impl DataType {
    /// From `ncclDataType_t`.
    pub fn from_nccl(number: i32) -> Self {
        match number {
            0 => Self::Int8,
            1 => Self::Uint8,
            2 => Self::Int32,
            3 => Self::Uint32,
            4 => Self::Int64,
            5 => Self::Uint64,
            6 => Self::Float16,
            7 => Self::Float32,
            8 => Self::Float64,
            9 => Self::Bfloat16,
            10 => Self::Float8E4m3,
            11 => Self::Float8E5m2,
            other => Self::Other(u8::try_from(other).unwrap_or(u8::MAX)),
        }
    }

    /// From `cudaDataType_t`, the numbering of cuBLAS.
    pub fn from_cuda(number: i32) -> Self {
        match number {
            0 => Self::Float32,
            1 => Self::Float64,
            2 => Self::Float16,
            3 => Self::Int8,
            4 => Self::Complex64,
            5 => Self::Complex128,
            8 => Self::Uint8,
            10 => Self::Int32,
            12 => Self::Uint32,
            14 => Self::Bfloat16,
            24 => Self::Int64,
            26 => Self::Uint64,
            28 => Self::Float8E4m3,
            29 => Self::Float8E5m2,
            33 => Self::Float4,
            other => Self::Other(u8::try_from(other).unwrap_or(u8::MAX)),
        }
    }

    /// The byte that the ledger stores for it.
    pub(crate) fn to_byte(self) -> u8 {
        let named = NAMED.iter().position(|&named| named == self);
        match (named, self) {
            (Some(place), _) => place as u8,
            // No library's number is that large.
            (None, Self::Other(number)) => number.saturating_add(NAMED.len() as u8),
            (None, _) => u8::MAX,
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Self {
        let named = NAMED.get(usize::from(byte)).copied();
        named.unwrap_or_else(|| Self::Other(byte.wrapping_sub(NAMED.len() as u8)))
    }

    /// Whether an element is complex, that is, a pair of numbers. The numbers in the code are those of
    /// cuBLAS's complex halves and complex integers, which have no variant here.
    pub(crate) fn is_complex(self) -> bool {
        match self {
            Self::Complex64 | Self::Complex128 => true,
            Self::Other(number) => matches!(number, 6 | 7 | 9 | 11 | 13 | 15 | 17 | 19 | 21 | 23 | 25 | 27),
            _ => false,
        }
    }

    /// Bytes of one element; 0 for a type of unknown size, so that no bandwidth is invented for it.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Complex128 => 16,
            Self::Float64 | Self::Int64 | Self::Uint64 | Self::Complex64 => 8,
            Self::Float32 | Self::Tf32 | Self::Int32 | Self::Uint32 => 4,
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Float8E4m3 | Self::Float8E5m2 | Self::Int8 | Self::Uint8 => 1,
            Self::Float4 | Self::Other(_) => 0,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Float64 => "f64",
            Self::Float32 => "f32",
            Self::Tf32 => "tf32",
            Self::Float16 => "f16",
            Self::Bfloat16 => "bf16",
            Self::Float8E4m3 => "f8e4m3",
            Self::Float8E5m2 => "f8e5m2",
            Self::Float4 => "f4",
            Self::Complex64 => "c64",
            Self::Complex128 => "c128",
            Self::Int64 => "i64",
            Self::Uint64 => "u64",
            Self::Int32 => "i32",
            Self::Uint32 => "u32",
            Self::Int8 => "i8",
            Self::Uint8 => "u8",
            Self::Other(number) => return write!(f, "type{number}"),
        };
        f.pad(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccl_sizes_are_those_of_its_header() {
        let sizes: Vec<u64> = (0..12).map(|n| DataType::from_nccl(n).bytes()).collect();
        assert_eq!(sizes, [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1]);
    }

    #[test]
    fn the_two_numberings_differ() {
        assert_eq!(DataType::from_nccl(9), DataType::from_cuda(14));
        assert_eq!(DataType::from_cuda(99), DataType::Other(99));
    }

    #[test]
    fn a_byte_holds_any_type() {
        for number in 0..100 {
            let known = DataType::from_cuda(number);
            assert_eq!(DataType::from_byte(known.to_byte()), known);
        }
        assert_eq!(DataType::from_byte(DataType::Tf32.to_byte()), DataType::Tf32);
    }
}
