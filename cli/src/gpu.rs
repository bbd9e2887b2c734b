//! The GPUs of this machine, for commands that compute on them: CUDA's libraries where they are found, and the time
//! that GEMMs, copies and collectives take alone.

pub(crate) mod device;
pub(crate) mod gemm;
pub(crate) mod library;
pub(crate) mod matmul;
pub(crate) mod nccl;
