#!/usr/bin/env bash
# The console in a real Chromium against the real binary: sign-up, live book, chart and tape, orders; 1280 and 390 wide, dark and light.
#   HOGA_BIN      the binary (target/debug/hoga), with the console built in
#   SCREENSHOTS   where the pictures go (.dev/screenshots)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup/install.sh"
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"

install_node
install_npm
install_chromium
export SCREENSHOTS="${SCREENSHOTS:-$DEV/screenshots}"
mkdir -p "$SCREENSHOTS"

start_server
status=0
node "$ROOT/tests/browser/console.mjs" || status=$?
stop_server
[ "$status" = 0 ] || die "the console failed; pictures are in $SCREENSHOTS"
say "pictures are in $SCREENSHOTS"
