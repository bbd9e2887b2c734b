#!/usr/bin/env bash
# Fuzzes the decoder (decode) or the ZMTP of the hook (receive), guided by coverage. The stable compiler is
# enough: compiler flags add libFuzzer's counters, and no sanitizer is used.
#
#     shared/fuzz/run.sh decode SECONDS [RECORDING...]
#     shared/fuzz/run.sh receive SECONDS
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=$1
seconds=${2:-60}
recordings=()
for file in "${@:3}"; do recordings+=("$(realpath "$file")"); done
mkdir -p "$here/../../target/fuzz" && cd "$here/../../target/fuzz"
host=$(rustc -vV | sed -n 's/^host: //p')
cargo run --quiet --release --manifest-path "$here/Cargo.toml" --target-dir plain --example seeds -- "${recordings[@]}"
RUSTFLAGS="-Cpasses=sancov-module -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks --cfg fuzzing $(printf -- '-Cllvm-args=-sanitizer-coverage-%s ' \
    level=4 inline-8bit-counters pc-table trace-compares)" \
    cargo build --quiet --release --manifest-path "$here/Cargo.toml" --target-dir guided --target "$host" --bin "$target"
exec "guided/$host/release/$target" -max_total_time="$seconds" -max_len=65536 -timeout=20 -rss_limit_mb=4096 "corpus/$target"
