#!/usr/bin/env bash
# Redis for development and tests: Debian's package, one server on each port. Two of them: the caches of groups A and B.
#
#   redis.sh up             install the package when missing, start a server on each port, wait until all answer
#   redis.sh down  [PORT]   stop in order
#   redis.sh kill  [PORT]   stop as a crash would (SIGKILL)
#   redis.sh stop  [PORT]   make it hang (SIGSTOP): connections stay open and silent
#   redis.sh cont  [PORT]   let it go on (SIGCONT)
#   redis.sh wipe           stop all and delete logs
#   redis.sh status         exit 0 when all answer
#   redis.sh cli PORT ARGS  the command-line client, e.g.  redis.sh cli 16379 INFO server
#
# Without PORT a command is for all of them. All bind to loopback; nothing is written to disk: after a restart a server is empty.
# Environment: HOGA_WORK (logs; default .dev/services in the repository), REDIS_PORTS ("16379 16380"), REDIS_EXTRA (further server options).
set -euo pipefail
NAME=redis
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

read -r -a PORTS <<<"${REDIS_PORTS:-16379 16380}"
DIR="$WORK/redis"

# A server that is silent for 2 s does not answer; one that hangs would keep the client waiting for ever.
answers() { [ "$(timeout 2 redis-cli -h 127.0.0.1 -p "$1" ping 2>/dev/null)" = PONG ]; }

up() {
  local t0 port; t0=$(date +%s%N)
  need redis-server redis-server
  mkdir -p "$DIR"
  for port in "${PORTS[@]}"; do
    if running "$DIR/$port.pid"; then say "already running on 127.0.0.1:$port"; continue; fi
    port_free "$port" REDIS_PORTS
    # No configuration file, so none of the package's. shellcheck: REDIS_EXTRA is a list of options
    # shellcheck disable=SC2086
    daemon "$DIR/$port.pid" "$DIR/$port.log" redis-server --bind 127.0.0.1 --port "$port" --dir "$DIR" --save '' --appendonly no ${REDIS_EXTRA:-}
  done
  for port in "${PORTS[@]}"; do await 20 "$DIR/$port.pid" "$DIR/$port.log" "the server on port $port" answers "$port"; done
  say "ready on 127.0.0.1:${PORTS[*]} after $(since "$t0")"
}

# each COMMAND [PORT]: for one server or all.
each() {
  local command=$1 port; shift
  for port in "${@:-${PORTS[@]}}"; do "$command" "$port"; done
}
down_one() { finish "$DIR/$1.pid" "the server on port $1" 10; }
kill_one() { finish "$DIR/$1.pid" "the server on port $1" 5 KILL; }
stop_one() { send "$DIR/$1.pid" "the server on port $1" STOP; }
cont_one() { send "$DIR/$1.pid" "the server on port $1" CONT; }
status_one() { running "$DIR/$1.pid" && answers "$1" || { say "not running on port $1"; exit 1; }; }

command=${1:-}
[ $# = 0 ] || shift
case "$command" in
  up) up ;;
  down | kill | stop | cont | status) each "${command}_one" "$@" ;;
  wipe) each kill_one; rm -rf "$DIR" ;;
  cli) port=$1; shift; exec redis-cli -h 127.0.0.1 -p "$port" "$@" ;;
  *) die "usage: redis.sh up | down [PORT] | kill [PORT] | stop [PORT] | cont [PORT] | wipe | status | cli PORT ARGS..." ;;
esac
