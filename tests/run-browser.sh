#!/usr/bin/env bash
# The console in a real Chromium against the real binary: sign-up, live book, chart and tape, orders; 1280 and 390 wide, dark and light;
# the tick plant's panel; and a page that stays open while the server is restarted.
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

start_server 0 --feed
failed=()
node "$ROOT/tests/browser/console.mjs" || failed+=(console)
node "$ROOT/tests/browser/plant.mjs" || failed+=(plant)
stop_server

# Without a tick plant. The page stays open while the server is restarted on the same port; it says through a file when to stop and when to start it.
start_server
export HOGA_RESTART="$WORK/restart"
node "$ROOT/tests/browser/restart.mjs" &
page=$!
told() { until grep -qs "$1" "$HOGA_RESTART" || ! kill -0 "$page" 2>/dev/null; do sleep 0.1; done; }
told stop
stop_server
told start
start_server "${HOGA_URL##*:}"
wait "$page" || failed+=(restart)
stop_server
[ ${#failed[@]} = 0 ] || die "failed: ${failed[*]}; pictures are in $SCREENSHOTS"
say "pictures are in $SCREENSHOTS"
