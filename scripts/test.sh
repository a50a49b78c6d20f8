#!/usr/bin/env bash
# All tests, or the parts named: lint unit crash faults plant clients browser. Builds once, in the dev profile (optimised, debug assertions on).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/path.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
parts=("$@")
[ $# -gt 0 ] || parts=(lint unit crash faults plant clients browser)
export HOGA_BIN="${HOGA_BIN:-$PWD/target/debug/hoga}"
say() { printf '\n== %s (%s)\n' "$*" "$(date +%T)"; }

lint() {
  say "format"
  cargo fmt --all --check
  say "clippy"
  cargo clippy --workspace --all-targets --features hoga-log/conformance,hoga-log/redis,hoga-log/zookeeper,hoga-engine/kafka --locked --quiet -- -D warnings
  cargo clippy -p hoga --no-default-features --locked --quiet -- -D warnings
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

# Real servers for the tests that need one: started here, on ports of their own, and gone when the tests end, however they end.
services() {
  export HOGA_WORK="${TMPDIR:-/tmp}/hoga-test-services.$$" KAFKA_PORT=29092 POSTGRES_PORT=25432 KAFKA_JVM="-XX:TieredStopAtLevel=1"
  # Short ticks, so that tests of leases need not wait for long sessions.
  export REDIS_PORTS="26379 26380" ZOOKEEPER_PORT=22181 ZOOKEEPER_TICK=200
  trap 'for service in kafka postgres redis zookeeper; do scripts/services/$service.sh wipe; done; rm -rf "$HOGA_WORK"' EXIT
  say "Apache Kafka, PostgreSQL, Redis and Apache ZooKeeper"
  for service in kafka postgres redis zookeeper; do scripts/services/$service.sh up; done
  # Declared apart, so that a failure ends the script.
  HOGA_TEST_KAFKA_PID=$(scripts/services/kafka.sh pid)
  export HOGA_TEST_KAFKA_PID HOGA_TEST_KAFKA=127.0.0.1:$KAFKA_PORT HOGA_TEST_POSTGRES=postgres://hoga@127.0.0.1:$POSTGRES_PORT/hoga
  export HOGA_TEST_REDIS=redis://127.0.0.1:26379 HOGA_TEST_REDIS_B=redis://127.0.0.1:26380 HOGA_TEST_ZOOKEEPER=127.0.0.1:$ZOOKEEPER_PORT
}

rust() {
  services
  say "Rust tests"
  # Without capture where a test has a figure or a SKIP to tell.
  cargo test --workspace --features hoga-log/conformance,hoga-log/redis,hoga-log/zookeeper,hoga-engine/kafka --locked --no-fail-fast -- --show-output 2>&1
}

unit() {
  recordings
  (rust)
  say "console tests"
  (cd web && npm run --silent check && npm test --silent)
}

binary() {
  say "the binary"
  cargo build --locked -p hoga
}

faults() { binary; say "faults with real servers"; "$HOGA_BIN" lab faults --outage "${OUTAGE:-30}"; }
plant() { binary; say "the tick plant on real servers"; "$HOGA_BIN" lab plant --outage "${OUTAGE:-10}"; }
crash() { binary; say "crash rounds"; "$HOGA_BIN" lab crash --rounds "${ROUNDS:-20}"; }
clients() { binary; say "real clients"; tests/run-clients.sh; }
browser() { binary; say "the console in Chromium"; tests/run-browser.sh; }

scripts/setup.sh
. scripts/path.sh
scripts/web.sh
for part in "${parts[@]}"; do
  case "$part" in
    lint | unit | crash | faults | plant | clients | browser) "$part" ;;
    *) echo "test.sh: no part named '$part' (lint unit crash faults plant clients browser)" >&2; exit 2 ;;
  esac
done
say "all of: ${parts[*]}: passed"
