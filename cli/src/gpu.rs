//! The GPUs of this machine, for commands that compute on them: finds CUDA's libraries, and times GEMMs,
//! copies and collectives alone.

pub(crate) mod device;
pub(crate) mod gemm;
pub(crate) mod library;
pub(crate) mod matmul;
pub(crate) mod nccl;
