#!/usr/bin/env bash
# Real clients against the real binary: ccxt (npm), ccxt (PyPI) and python-binance, each with two accounts of its own, at the same time.
#   HOGA_BIN        the binary (target/debug/hoga)
#   DEPTH_SECONDS   how long python-binance's depth cache has to run without a resync (120)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup/install.sh"
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"

install_node
install_npm
install_python
export DEPTH_SECONDS="${DEPTH_SECONDS:-120}"
export HOGA_MARKET="${HOGA_MARKET:-BTC/USDT}"

start_server
declare -A running
# client NAME COMMAND...: starts one client with fresh accounts; its output is shown when it is done.
client() {
  local name=$1
  shift
  new_account
  local key=$KEY secret=$SECRET
  new_account
  HOGA_KEY=$key HOGA_SECRET=$secret HOGA_KEY2=$KEY HOGA_SECRET2=$SECRET "$@" >"$WORK/$name.log" 2>&1 &
  running[$name]=$!
}
client ccxt-javascript node "$ROOT/tests/clients/ccxt.mjs"
client ccxt-python "$HOGA_PYTHON" "$ROOT/tests/clients/ccxt_python.py"
client python-binance "$HOGA_PYTHON" "$ROOT/tests/clients/python_binance.py"
say "three clients at work; python-binance's depth cache runs for $DEPTH_SECONDS s"

failed=()
for name in ccxt-javascript ccxt-python python-binance; do
  status=0
  wait "${running[$name]}" || status=$?
  say "$name"
  cat "$WORK/$name.log"
  [ "$status" = 0 ] || failed+=("$name")
done
stop_server
[ ${#failed[@]} = 0 ] || die "failed: ${failed[*]}"
