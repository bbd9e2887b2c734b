//! A shape as arguments of cuBLAS.

use cudarc::cublas::sys::{
    cublasComputeType_t as Compute, cublasOperation_t as Operation, cudaDataType_t as Type,
};
use xpu_wire::{
    datatype::DataType,
    gemm::{ComputeType, GemmShape, Routine},
};

/// Alignment of each of the three matrices.
const ALIGNED: u64 = 256;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Gemm {
    pub sides: [i32; 3],
    pub batch: i32,
    pub operations: [Operation; 2],
    /// Leading dimensions of A, B and D, which have no gaps.
    pub leading: [i32; 3],
    /// Elements from one matrix of a batch to the next.
    pub strides: [i64; 3],
    /// Type of A and B, and type of D.
    pub types: [Type; 2],
    pub compute: Compute,
    /// The number 1 in this compute type; the remaining bytes are 0.
    pub one: [u8; 16],
    pub elements: DataType,
    /// Offsets of A, B and D, and of the end.
    pub offsets: [u64; 4],
}

impl Gemm {
    /// Converts a shape. The error is the reason why cuBLAS cannot compute it.
    pub(crate) fn of(shape: &GemmShape) -> Result<Self, String> {
        let GemmShape { m, n, k, batch, routine, .. } = *shape;
        if routine != Routine::Gemm {
            return Err(format!("a {} is not replayed", routine.name()));
        }
        let types = types(shape.datatype)?;
        let (compute, one) = compute(shape)?;
        let number = |side: u64| {
            i32::try_from(side)
                .ok()
                .filter(|&side| side > 0)
                .ok_or_else(|| "a side is 0, or beyond 2^31".to_owned())
        };
        let (a, b) = shape.transposed;
        let leading = [if a { k } else { m }, if b { n } else { k }, m];
        let sizes = [(m, k, shape.datatype), (k, n, shape.datatype), (m, n, types.output)];
        let mut offsets = [0_u64; 4];
        let mut strides = [0_i64; 3];
        for (place, (rows, columns, datatype)) in sizes.into_iter().enumerate() {
            let elements = rows.checked_mul(columns);
            let bytes = elements.and_then(|one| one.checked_mul(batch)?.checked_mul(datatype.bytes()));
            let next =
                bytes.and_then(|bytes| bytes.checked_next_multiple_of(ALIGNED)?.checked_add(offsets[place]));
            offsets[place + 1] = next.ok_or("it is larger than any memory")?;
            strides[place] = elements.unwrap_or(0) as i64;
        }
        let operation = |transposed| if transposed { Operation::CUBLAS_OP_T } else { Operation::CUBLAS_OP_N };
        Ok(Self {
            sides: [number(m)?, number(n)?, number(k)?],
            batch: number(batch)?,
            operations: [operation(a), operation(b)],
            leading: [number(leading[0])?, number(leading[1])?, number(leading[2])?],
            strides,
            types: [types.a, types.d],
            compute,
            one,
            elements: shape.datatype,
            offsets,
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.offsets[3]
    }
}

/// Type of A and B, and type of D with the format of its elements.
struct Types {
    a: Type,
    d: Type,
    output: DataType,
}

fn types(datatype: DataType) -> Result<Types, String> {
    let same = |of| Ok(Types { a: of, d: of, output: datatype });
    match datatype {
        DataType::Float64 => same(Type::CUDA_R_64F),
        DataType::Float32 | DataType::Tf32 => same(Type::CUDA_R_32F),
        DataType::Float16 => same(Type::CUDA_R_16F),
        DataType::Bfloat16 => same(Type::CUDA_R_16BF),
        DataType::Complex64 => same(Type::CUDA_C_32F),
        DataType::Complex128 => same(Type::CUDA_C_64F),
        DataType::Int8 => Ok(Types { a: Type::CUDA_R_8I, d: Type::CUDA_R_32I, output: DataType::Int32 }),
        DataType::Float8E4m3 | DataType::Float8E5m2 | DataType::Float4 => {
            Err("8-bit and 4-bit floats, with their scales, need cublasLt".to_owned())
        }
        other => Err(format!("cuBLAS has no GEMM of {other}")),
    }
}

fn compute(shape: &GemmShape) -> Result<(Compute, [u8; 16]), String> {
    let with = |compute, one: &[u8]| {
        let mut scalar = [0; 16];
        scalar[..one.len()].copy_from_slice(one);
        Ok((compute, scalar))
    };
    let single = 1_f32.to_le_bytes();
    match shape.compute {
        ComputeType::Float32 if shape.datatype == DataType::Tf32 => {
            with(Compute::CUBLAS_COMPUTE_32F_FAST_TF32, &single)
        }
        ComputeType::Float32 => with(Compute::CUBLAS_COMPUTE_32F, &single),
        ComputeType::Float32Fast16 => with(Compute::CUBLAS_COMPUTE_32F_FAST_16F, &single),
        ComputeType::Float32FastBfloat16 => with(Compute::CUBLAS_COMPUTE_32F_FAST_16BF, &single),
        ComputeType::Float32FastTf32 => with(Compute::CUBLAS_COMPUTE_32F_FAST_TF32, &single),
        ComputeType::Float64 => with(Compute::CUBLAS_COMPUTE_64F, &1_f64.to_le_bytes()),
        ComputeType::Int32 => with(Compute::CUBLAS_COMPUTE_32I, &1_i32.to_le_bytes()),
        // 1 in half precision.
        ComputeType::Float16 => with(Compute::CUBLAS_COMPUTE_16F, &0x3c00_u16.to_le_bytes()),
        ComputeType::Other(number) => Err(format!("its compute type, {number}, is not known")),
    }
}

/// Random numbers between 1/16 and 1, of either sign, because multiplying zeros takes less power and so less
/// time.
pub(crate) fn numbers(datatype: DataType, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // The number of bits of an element and of its fraction, and the exponent of 1/16.
    let (width, fraction, exponent) = match datatype {
        DataType::Float64 | DataType::Complex128 => (64, 52, 1019),
        DataType::Float32 | DataType::Tf32 | DataType::Complex64 => (32, 23, 123),
        DataType::Float16 => (16, 10, 11),
        DataType::Bfloat16 => (16, 7, 123),
        DataType::Float8E4m3 => (8, 3, 3),
        _ => return (0..bytes).map(|_| (random() >> 32) as u8).collect(),
    };
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        let (digits, more) = (random(), random() >> 32);
        let sign = (more & 1) << (width - 1);
        let element = sign | (exponent + (more >> 1) % 4) << fraction | digits & ((1 << fraction) - 1);
        out.extend_from_slice(&element.to_le_bytes()[..width / 8]);
    }
    out.truncate(bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: GemmShape = GemmShape {
        m: 300,
        n: 200,
        k: 100,
        batch: 3,
        datatype: DataType::Bfloat16,
        compute: ComputeType::Float32,
        transposed: (true, false),
        routine: Routine::Gemm,
    };

    #[test]
    fn matrices_lie_one_after_the_other() {
        let gemm = Gemm::of(&SHAPE).expect("cuBLAS does it");
        assert_eq!((gemm.sides, gemm.leading, gemm.batch), ([300, 200, 100], [100, 100, 300], 3));
        assert_eq!(gemm.strides, [30_000, 20_000, 60_000]);
        // Six bytes for each element, rounded up to 256.
        assert_eq!(gemm.offsets, [0, 180_224, 300_288, 660_480]);
        assert_eq!(gemm.one[..4], 1_f32.to_le_bytes());
    }

    #[test]
    fn an_impossible_gemm_is_refused_with_the_reason() {
        let why = |shape| Gemm::of(&shape).expect_err("it cannot");
        let float8 = GemmShape { datatype: DataType::Float8E4m3, ..SHAPE };
        assert!(why(float8).contains("cublasLt"), "{}", why(float8));
        assert!(why(GemmShape { m: 1 << 40, ..SHAPE }).contains("2^31"));
        assert!(why(GemmShape { m: u64::MAX, ..SHAPE }).contains("any memory"));
        assert!(why(GemmShape { k: 0, ..SHAPE }).contains('0'));
        assert!(why(GemmShape { routine: Routine::Trsm, ..SHAPE }).contains("trsm"));
        assert!(why(GemmShape { compute: ComputeType::Other(9), ..SHAPE }).contains('9'));
    }

    #[test]
    fn numbers_are_neither_zero_nor_large() {
        let floats = numbers(DataType::Float32, 4000);
        let all = floats.chunks_exact(4).map(|of| f32::from_le_bytes([of[0], of[1], of[2], of[3]]));
        assert!(all.clone().all(|number| (0.0625..1.0).contains(&number.abs())));
        assert!(all.clone().any(|number| number < 0.0) && all.clone().any(|number| number > 0.5));
        let doubles = numbers(DataType::Float64, 80);
        let first = f64::from_le_bytes(doubles[..8].try_into().expect("eight"));
        assert!((0.0625..1.0).contains(&first.abs()), "{first}");
        assert_eq!(numbers(DataType::Bfloat16, 7).len(), 7);
        // 0x7f and 0xff are not numbers.
        assert!(numbers(DataType::Float8E4m3, 4000).iter().all(|byte| (0x18..0x38).contains(&(byte & 0x7f))));
    }
}
