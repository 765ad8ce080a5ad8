#!/usr/bin/env bash
# Measures the transport in simulation: prints one PASS or MISS line a row, then saves
# bench/results/transport.json. Exits 0 if it could measure. `--size=small|normal|full`, `--only=TEXT` and
# `--jobs=N` are those of `farhaul-sim table`.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
cargo build -q --release -p farhaul-sim
exec "${CARGO_TARGET_DIR:-target}/release/farhaul-sim" table --json=bench/results/transport.json --jobs="$(nproc)" "$@"
