#!/usr/bin/env bash
# Measures each budget on this machine. Needs the output of `cargo build --release --workspace`, a C compiler
# and Python.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec "${CARGO:-cargo}" run --quiet --release -p xpu-tests --example bench
