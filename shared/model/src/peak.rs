//! The peak of a GPU: dense FLOPS by precision.
//!
//! From NVIDIA's data sheets and architecture white papers of each model (V100, T4, A100, A30, A40, A10,
//! H100, H200, GH200, L4, L40, L40S, DGX and HGX B200, GB200, Ampere GA102 and Ada AD102), without sparsity:
//! if a sheet gives only the figure with sparsity, half of it is used. The figures assume boost clocks
//! without a power limit, so real GEMMs reach less. A model that is not listed has no peak, and figures based
//! on it are unknown. No peak is guessed from a similar name.

use xpu_wire::{
    datatype::DataType,
    gemm::{ComputeType, GemmShape},
};

/// The precision of a multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    Float64,
    Float32,
    Tf32,
    Float16,
    Bfloat16,
    Float8,
    Float4,
    Int8,
}

impl Precision {
    const ALL: [(&str, Self); 8] = [
        ("fp64", Self::Float64),
        ("fp32", Self::Float32),
        ("tf32", Self::Tf32),
        ("fp16", Self::Float16),
        ("bf16", Self::Bfloat16),
        ("fp8", Self::Float8),
        ("fp4", Self::Float4),
        ("int8", Self::Int8),
    ];

    /// The precision of a GEMM; `None` if no tensor core or plain multiplier is known for it.
    pub fn of(shape: &GemmShape) -> Option<Self> {
        Some(match (shape.datatype, shape.compute) {
            (DataType::Float64 | DataType::Complex128, _) => Self::Float64,
            (DataType::Float32 | DataType::Complex64, ComputeType::Float32FastTf32) | (DataType::Tf32, _) => {
                Self::Tf32
            }
            (DataType::Float32 | DataType::Complex64, ComputeType::Float32Fast16) => Self::Float16,
            (DataType::Float32 | DataType::Complex64, ComputeType::Float32FastBfloat16) => Self::Bfloat16,
            (DataType::Float32 | DataType::Complex64, _) => Self::Float32,
            (DataType::Float16, _) => Self::Float16,
            (DataType::Bfloat16, _) => Self::Bfloat16,
            (DataType::Float8E4m3 | DataType::Float8E5m2, _) => Self::Float8,
            (DataType::Float4, _) => Self::Float4,
            (DataType::Int8 | DataType::Uint8, _) => Self::Int8,
            _ => return None,
        })
    }
}

/// Peaks of one model, in TFLOPS, in the order of [`Precision::ALL`]; 0 without such units.
type Row = [f64; 8];

/// The words that a model's name must contain, and its peaks. The first match counts.
#[rustfmt::skip]
const MODELS: [(&[&str], Row); 27] = [
    //                  fp64   fp32   tf32    fp16    bf16    fp8     fp4      int8
    (&["GB200"],        [40.0, 80.0, 1250.0, 2500.0, 2500.0, 5000.0, 10_000.0, 5000.0]),
    (&["B200"],         [37.0, 75.0, 1125.0, 2250.0, 2250.0, 4500.0, 9000.0, 4500.0]),
    (&["B100"],         [30.0, 60.0, 875.0, 1750.0, 1750.0, 3500.0, 7000.0, 3500.0]),
    (&["GH200"],        [67.0, 67.0, 494.5, 989.5, 989.5, 1979.0, 0.0, 1979.0]),
    (&["H200", "NVL"],  [60.0, 60.0, 417.5, 835.5, 835.5, 1670.5, 0.0, 1670.5]),
    (&["H200"],         [67.0, 67.0, 494.5, 989.5, 989.5, 1979.0, 0.0, 1979.0]),
    (&["H100", "PCIe"], [51.0, 51.0, 378.0, 756.5, 756.5, 1513.0, 0.0, 1513.0]),
    (&["H100", "NVL"],  [60.0, 60.0, 417.5, 835.5, 835.5, 1670.5, 0.0, 1670.5]),
    (&["H100", "HBM3"], [67.0, 67.0, 494.5, 989.5, 989.5, 1979.0, 0.0, 1979.0]),
    (&["H800", "PCIe"], [0.8, 51.0, 378.0, 756.5, 756.5, 1513.0, 0.0, 1513.0]),
    (&["H800"],         [1.0, 67.0, 494.5, 989.5, 989.5, 1979.0, 0.0, 1979.0]),
    (&["H20"],          [1.0, 44.0, 74.0, 148.0, 148.0, 296.0, 0.0, 296.0]),
    (&["A100", "SXM4"], [19.5, 19.5, 156.0, 312.0, 312.0, 0.0, 0.0, 624.0]),
    (&["A100", "PCIe"], [19.5, 19.5, 156.0, 312.0, 312.0, 0.0, 0.0, 624.0]),
    (&["A800"],         [9.7, 19.5, 156.0, 312.0, 312.0, 0.0, 0.0, 624.0]),
    (&["A30"],          [10.3, 10.3, 82.0, 165.0, 165.0, 0.0, 0.0, 330.0]),
    (&["A40"],          [0.0, 37.4, 74.8, 149.7, 149.7, 0.0, 0.0, 299.3]),
    (&["A10"],          [0.0, 31.2, 62.5, 125.0, 125.0, 0.0, 0.0, 250.0]),
    (&["L40S"],         [0.0, 91.6, 183.0, 362.0, 362.0, 733.0, 0.0, 733.0]),
    (&["L40"],          [0.0, 90.5, 90.5, 181.0, 181.0, 362.0, 0.0, 362.0]),
    (&["L4"],           [0.0, 30.3, 60.0, 121.0, 121.0, 242.5, 0.0, 242.5]),
    (&["V100S"],        [8.2, 16.4, 0.0, 130.0, 0.0, 0.0, 0.0, 0.0]),
    (&["V100", "SXM2"], [7.8, 15.7, 0.0, 125.0, 0.0, 0.0, 0.0, 0.0]),
    (&["V100", "PCIe"], [7.0, 14.0, 0.0, 112.0, 0.0, 0.0, 0.0, 0.0]),
    (&["T4"],           [0.0, 8.1, 0.0, 65.0, 0.0, 0.0, 0.0, 130.0]),
    // Consumer models multiply half precision at half speed when they accumulate in single, as training does.
    (&["RTX", "4090"],  [0.0, 82.6, 82.6, 165.2, 165.2, 330.3, 0.0, 660.6]),
    (&["RTX", "3090"],  [0.0, 35.6, 35.6, 71.0, 71.0, 0.0, 0.0, 284.0]),
];

/// GB/s of all `NVLinks` of a GPU together, one way, from the same sheets: only for models whose boards
/// always link all their GPUs. Bridges between cards are optional, and boards of the V100 link some pairs
/// twice and others not at all.
const LINKED: [(&[&str], f64); 9] = [
    (&["GB200"], 900.0),
    (&["B200"], 900.0),
    (&["B100"], 900.0),
    (&["H200"], 450.0),
    (&["H100", "HBM3"], 450.0),
    (&["H800", "HBM3"], 200.0),
    (&["H20"], 450.0),
    (&["A100", "SXM4"], 300.0),
    (&["A800", "SXM4"], 200.0),
];

/// GB/s that the GPU with this CUDA name can send to others of its board.
pub fn nvlink_gb_s(device: &str) -> Option<f64> {
    let name = Name::of(device);
    let bridged = name.has("NVL") || name.has("PCIe");
    LINKED.iter().find(|(model, _)| name.is(model)).filter(|_| !bridged).map(|&(_, gb_s)| gb_s)
}

/// The words of a name.
struct Name<'a>(Vec<&'a str>);

impl<'a> Name<'a> {
    fn of(device: &'a str) -> Self {
        Self(device.split([' ', '-']).collect())
    }

    fn has(&self, word: &str) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(word))
    }

    /// Whether the name is of this model, and not of a similar one.
    fn is(&self, model: &[&str]) -> bool {
        model.iter().all(|word| self.has(word)) && !OTHERS.iter().any(|word| self.has(word))
    }
}

/// Words with which a name means another model: laptops, larger and smaller variants, and slices of a GPU.
const OTHERS: [&str; 6] = ["MIG", "Laptop", "Ti", "D", "SUPER", "Mobile"];

/// Peaks of one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peaks {
    tera: [Option<f64>; 8],
}

impl Peaks {
    /// Overrides the data sheets: `bf16=989,fp8=1979`, in TFLOPS.
    pub const VARIABLE: &str = "XPU_TOP_PEAK_TFLOPS";

    /// Parses [`Self::VARIABLE`].
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut peaks = Self::default();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let wrong = || {
                let names: Vec<_> = Precision::ALL.iter().map(|(name, _)| *name).collect();
                format!(
                    "{}: '{part}' is not NAME=TFLOPS with NAME one of {}",
                    Self::VARIABLE,
                    names.join(", ")
                )
            };
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let known = |(known, _): &(&str, Precision)| *known == name.trim();
            let at = Precision::ALL.iter().position(known).ok_or_else(wrong)?;
            let value = value.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
            peaks.tera[at] = Some(value.ok_or_else(wrong)?);
        }
        Ok(peaks)
    }

    /// The peaks of the GPU with this CUDA name, unless overridden.
    #[must_use]
    pub fn or_of(self, device: &str) -> Self {
        let name = Name::of(device);
        let row = MODELS.iter().find(|(model, _)| name.is(model)).map_or([0.0; 8], |(_, row)| *row);
        let sheet = |at: usize| Some(row[at]).filter(|&tera| tera > 0.0);
        Self { tera: std::array::from_fn(|at| self.tera[at].or_else(|| sheet(at))) }
    }

    /// Seconds that one such GEMM's FLOPs take at the peak.
    pub fn seconds(&self, shape: &GemmShape) -> Option<f64> {
        let precision = Precision::of(shape)?;
        let at = Precision::ALL.iter().position(|(_, known)| *known == precision)?;
        Some(shape.flops() / (self.tera[at]? * 1e12))
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::gemm::Routine;

    use super::*;

    fn gemm(datatype: DataType, compute: ComputeType) -> GemmShape {
        // 10^12 operations.
        GemmShape {
            m: 1000,
            n: 1000,
            k: 500_000,
            batch: 1,
            datatype,
            compute,
            transposed: (false, false),
            routine: Routine::Gemm,
        }
    }

    fn tera(device: &str, datatype: DataType, compute: ComputeType) -> Option<f64> {
        Peaks::default()
            .or_of(device)
            .seconds(&gemm(datatype, compute))
            .map(|seconds| (10.0 / seconds).round() / 10.0)
    }

    #[test]
    fn each_model_is_known_by_cudas_name() {
        let bf16 = |device| tera(device, DataType::Bfloat16, ComputeType::Float32);
        for (device, peak) in [
            ("NVIDIA H100 80GB HBM3", 989.5),
            ("NVIDIA H100 PCIe", 756.5),
            ("NVIDIA H100 NVL", 835.5),
            ("NVIDIA H200", 989.5),
            ("NVIDIA GH200 480GB", 989.5),
            ("NVIDIA H20", 148.0),
            ("NVIDIA A100-SXM4-80GB", 312.0),
            ("NVIDIA A100 80GB PCIe", 312.0),
            ("NVIDIA A100-PCIE-40GB", 312.0),
            ("NVIDIA A10", 125.0),
            ("NVIDIA L40S", 362.0),
            ("NVIDIA L4", 121.0),
            ("NVIDIA B200", 2250.0),
            ("NVIDIA GB200", 2500.0),
            ("NVIDIA GeForce RTX 4090", 165.2),
        ] {
            assert_eq!(bf16(device), Some(peak), "{device}");
        }
        assert_eq!(tera("Tesla V100-SXM2-32GB", DataType::Float16, ComputeType::Float32), Some(125.0));
        assert_eq!(tera("Tesla T4", DataType::Float16, ComputeType::Float32), Some(65.0));
    }

    #[test]
    fn a_device_outside_the_list_has_no_peak() {
        for device in [
            "",
            "NVIDIA H300",
            "NVIDIA A10G",
            "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            "NVIDIA A100-SXM-64GB",
            "NVIDIA GeForce RTX 3090 Ti",
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "AMD Instinct MI300X",
        ] {
            assert_eq!(tera(device, DataType::Bfloat16, ComputeType::Float32), None, "{device}");
        }
        assert_eq!(tera("Tesla V100-SXM2-32GB", DataType::Bfloat16, ComputeType::Float32), None);
        assert_eq!(tera("NVIDIA A100-SXM4-80GB", DataType::Float8E4m3, ComputeType::Float32), None);
    }

    #[test]
    fn only_boards_that_link_all_their_gpus_have_a_link_peak() {
        assert_eq!(nvlink_gb_s("NVIDIA H200"), Some(450.0));
        assert_eq!(nvlink_gb_s("NVIDIA A100-SXM4-80GB"), Some(300.0));
        for device in ["NVIDIA H200 NVL", "NVIDIA H100 PCIe", "NVIDIA L40S", "Tesla V100-SXM2-32GB", ""] {
            assert_eq!(nvlink_gb_s(device), None, "{device}");
        }
    }

    #[test]
    fn the_compute_type_determines_the_peak() {
        let h100 = |datatype, compute| tera("NVIDIA H100 80GB HBM3", datatype, compute);
        assert_eq!(h100(DataType::Float32, ComputeType::Float32), Some(67.0));
        assert_eq!(h100(DataType::Float32, ComputeType::Float32FastTf32), Some(494.5));
        assert_eq!(h100(DataType::Float32, ComputeType::Float32FastBfloat16), Some(989.5));
        assert_eq!(h100(DataType::Float8E5m2, ComputeType::Float32), Some(1979.0));
        assert_eq!(h100(DataType::Float64, ComputeType::Float64), Some(67.0));
    }

    #[test]
    fn a_measured_peak_takes_precedence_over_the_data_sheet() {
        let said = Peaks::parse("bf16=800, fp8=1600").unwrap();
        let peaks = said.or_of("NVIDIA H100 80GB HBM3");
        let seconds = |datatype| peaks.seconds(&gemm(datatype, ComputeType::Float32));
        assert_eq!(seconds(DataType::Bfloat16), Some(1.0 / 800.0));
        assert_eq!(seconds(DataType::Float32), Some(1.0 / 67.0));
        assert_eq!(said.or_of("nothing known").seconds(&gemm(DataType::Float16, ComputeType::Float32)), None);
        for wrong in ["bf16", "bf16=fast", "bf17=3", "bf16=-1", "bf16=0"] {
            assert!(Peaks::parse(wrong).unwrap_err().contains("XPU_TOP_PEAK_TFLOPS"), "{wrong}");
        }
    }
}
