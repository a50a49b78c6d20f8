#!/usr/bin/env bash
# Licences, duplicate and banned crates, and sources, by cargo-deny. The advisories database is on the public internet; it is checked
# where that can be reached.
set -euo pipefail
if ! command -v cargo-deny >/dev/null; then
  echo "== installing cargo-deny (once; it takes some minutes)"
  cargo install --locked --quiet cargo-deny
fi
cargo deny --log-level error check licenses bans sources
