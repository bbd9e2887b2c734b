#!/usr/bin/env bash
# Fuzzes the decoder, guided by coverage, with the compiler that builds everything else: libFuzzer's counters come by flags, and there is
# no sanitizer.
#
#     shared/fuzz/run.sh SECONDS [RECORDING...]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seconds=${1:-60}
recordings=()
for file in "${@:2}"; do recordings+=("$(realpath "$file")"); done
mkdir -p "$here/../../target/fuzz" && cd "$here/../../target/fuzz"
host=$(rustc -vV | sed -n 's/^host: //p')
cargo run --quiet --release --manifest-path "$here/Cargo.toml" --target-dir plain --example seeds -- "${recordings[@]}"
RUSTFLAGS="-Cpasses=sancov-module -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks --cfg fuzzing $(printf -- '-Cllvm-args=-sanitizer-coverage-%s ' \
    level=4 inline-8bit-counters pc-table trace-compares)" \
    cargo build --quiet --release --manifest-path "$here/Cargo.toml" --target-dir guided --target "$host" --bin decode
exec "guided/$host/release/decode" -max_total_time="$seconds" -max_len=65536 -timeout=20 -rss_limit_mb=4096 corpus/decode
