//! Kernel names: mangled, demangled, and short enough for a table.

/// Kernels of NCCL, which wait for other ranks and move data:
/// `ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)`, and the names before 2.19.
pub fn communicates(name: &str) -> bool {
    let name =
        name.strip_prefix("_Z").map_or(name, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    ["ncclDevKernel", "ncclKernel", "ncclSymkDevKernel", "ncclSymDevKernel"]
        .iter()
        .any(|known| name.starts_with(known))
}

/// The whole name, in C++ syntax. A name that is not mangled is returned unchanged.
pub fn demangled(name: &str) -> String {
    let options = cpp_demangle::DemangleOptions::new().no_return_type();
    let symbol = name.starts_with("_Z").then(|| cpp_demangle::Symbol::new(name).ok()).flatten();
    symbol.and_then(|symbol| symbol.demangle_with_options(&options).ok()).unwrap_or_else(|| name.to_owned())
}

/// The name without return type, parameters, name spaces, and nested template arguments:
/// `elementwise_kernel<128, 4, gpu_kernel_impl_nocast<..>>`.
pub fn short(demangled: &str) -> String {
    let name = demangled.strip_prefix("void ").unwrap_or(demangled);
    let name = name.replace("(anonymous namespace)::", "").replace("{lambda", "lambda");
    let (mut out, mut depth) = (String::new(), 0_usize);
    // Start of the word that a following `::` would end.
    let mut word = 0;
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '<' => {
                depth += 1;
                match depth {
                    1 => out.push('<'),
                    2 => out.push_str("<..>"),
                    _ => {}
                }
                if depth == 1 {
                    word = out.len();
                }
            }
            '>' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    out.truncate(out.trim_end().len());
                    out.push('>');
                }
            }
            _ if depth > 1 => {}
            '(' if depth == 0 && !out.is_empty() => break,
            // This is a cast such as `(int)4`, where the argument's type adds little.
            '(' => for _ in letters.by_ref().take_while(|&letter| letter != ')') {},
            ':' if letters.next_if_eq(&':').is_some() => {
                // A template is kept, because `A<4>::kernel` differs from other kernels of this name.
                if out[word..].contains('>') {
                    out.push_str("::");
                } else {
                    out.truncate(word);
                }
            }
            ',' | ' ' => {
                if !(letter == ' ' && out.ends_with([' ', '<'])) {
                    out.push(letter);
                }
                word = out.len();
            }
            letter => out.push(letter),
        }
    }
    let out = out.trim();
    if out.is_empty() { demangled.to_owned() } else { out.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_shortened() {
        let said: Vec<_> = [
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
            "_Z23ncclDevKernel_AllReducePv",
            "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT",
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>(cutlass_80_tensorop_bf16_s16816gemm::Params)",
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::Opaque<4u>, unsigned int, 3>(int)",
            "fused<(int)4, a::b>(float*)",
            "",
        ]
        .map(|name| short(&demangled(name)))
        .into();
        let wanted = [
            "vectorized_elementwise_kernel<4, FillFunctor<..>, array<..>>",
            "ncclDevKernel_AllReduce",
            "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT",
            "Kernel2<cutlass_80_tensorop_bf16_s16816gemm>",
            "CatArrayBatchedCopy<Opaque<..>, unsigned int, 3>",
            "fused<4, b>",
            "",
        ];
        assert_eq!(said, wanted);
    }

    #[test]
    fn nccls_are_recognised_mangled_and_not() {
        let names = [
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", true),
            ("_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE", true),
            ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", true),
            ("my_ncclDevKernel", false),
            ("nvjet_tst_128x8", false),
        ];
        for (name, is) in names {
            assert_eq!(communicates(name), is, "{name}");
        }
    }
}
