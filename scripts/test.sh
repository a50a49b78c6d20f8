#!/usr/bin/env bash
# All tests, or the parts named: lint unit crash clients browser. Builds once, in the dev profile (optimised, debug assertions on).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/path.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
parts=("$@")
[ $# -gt 0 ] || parts=(lint unit crash clients browser)
export HOGA_BIN="${HOGA_BIN:-$PWD/target/debug/hoga}"
say() { printf '\n== %s (%s)\n' "$*" "$(date +%T)"; }

lint() {
  say "format"
  cargo fmt --all --check
  say "clippy"
  cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
  say "licences, bans and sources"
  scripts/deny.sh
}

# Recordings are not in the repository. Their tests pass without them; that must not go unnoticed.
recordings() {
  local data="${HOGA_DATA:-$PWD/../shared/data}" folder
  for folder in bitstamp-l3 me-consensus kraken-ohlc exchange-captures; do
    [ -d "$data/$folder" ] || echo "SKIP $folder: no recording in $data (set HOGA_DATA)"
  done
}

unit() {
  recordings
  say "Rust tests"
  cargo test --workspace --locked --no-fail-fast 2>&1
  say "console tests"
  (cd web && npm run --silent check && npm test --silent)
}

binary() {
  say "the binary"
  cargo build --locked -p hoga
}

crash() { binary; say "crash rounds"; "$HOGA_BIN" lab crash --rounds "${ROUNDS:-20}"; }
clients() { binary; say "real clients"; tests/run-clients.sh; }
browser() { binary; say "the console in Chromium"; tests/run-browser.sh; }

scripts/setup.sh
. scripts/path.sh
scripts/web.sh
for part in "${parts[@]}"; do
  case "$part" in
    lint | unit | crash | clients | browser) "$part" ;;
    *) echo "test.sh: no part named '$part' (lint unit crash clients browser)" >&2; exit 2 ;;
  esac
done
say "all of: ${parts[*]}: passed"
