#!/usr/bin/env bash
# The budgets, each with what it is here. Needs what `cargo build --release --workspace` makes, a C compiler and Python.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec "${CARGO:-cargo}" run --quiet --release -p xpu-tests --example bench
