# Sourced by run-clients.sh and run-browser.sh, after setup/install.sh: one hoga process of their own, on a free port, in a folder of its own.
#
#   start_server [PORT [FLAG...]]  starts $HOGA_BIN up (port 0: a free one) with more flags, waits for its ready line; sets HOGA_URL
#                            and HOGA_ADMIN_TOKEN
#   new_account              makes a paper account with 10 BTC and 1,000,000 USDT; sets KEY and SECRET
#   stop_server              SIGTERM; fails unless it ends in order within 5 s

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
HOGA_BIN="${HOGA_BIN:-$ROOT/target/debug/hoga}"
WORK="$(mktemp -d)"
SERVER_PID=
READY_S=60
trap 'cleanup' EXIT

cleanup() {
  if [ -n "$SERVER_PID" ]; then
    kill -KILL "$SERVER_PID" 2>/dev/null || :
    echo "-- the end of the server's log:" >&2
    tail -n 20 "$WORK/server.log" >&2
  fi
  rm -rf "$WORK"
}

start_server() {
  [ -x "$HOGA_BIN" ] || die "no binary at $HOGA_BIN: build it, or set HOGA_BIN"
  : >"$WORK/ready"
  "$HOGA_BIN" up --data "$WORK/data" --port "${1:-0}" "${@:2}" >"$WORK/ready" 2>"$WORK/server.log" &
  SERVER_PID=$!
  local until=$((SECONDS + READY_S))
  until HOGA_URL=$(sed -n 's/^ready \(http:[^ ]*\).*/\1/p' "$WORK/ready") && [ -n "$HOGA_URL" ]; do
    kill -0 "$SERVER_PID" 2>/dev/null || die "the server ended before it was ready"
    [ "$SECONDS" -lt "$until" ] || die "no ready line within $READY_S s"
    sleep 0.1
  done
  HOGA_ADMIN_TOKEN=$(field admin_token "$(cat "$WORK/data/run.json")")
  export HOGA_URL HOGA_ADMIN_TOKEN
  say "hoga serves at $HOGA_URL"
}

new_account() {
  local line
  line=$("$HOGA_BIN" key new --data "$WORK/data" --deposit BTC=10 --deposit USDT=1000000)
  KEY=$(field key "$line")
  SECRET=$(field secret "$line")
  [ -n "$KEY" ] && [ -n "$SECRET" ] || die "hoga key new printed no key and secret: $line"
}

# field NAME JSON: a text field of a flat JSON object.
field() { sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p" <<<"$2"; }

stop_server() {
  local started=$SECONDS status=0
  kill -TERM "$SERVER_PID"
  while kill -0 "$SERVER_PID" 2>/dev/null; do
    [ $((SECONDS - started)) -le 5 ] || die "the server did not end within 5 s of SIGTERM"
    sleep 0.1
  done
  wait "$SERVER_PID" || status=$?
  [ "$status" = 0 ] || die "the server ended with $status after SIGTERM"
  SERVER_PID=
  say "the server ended in order"
}
