#!/usr/bin/env bash
# PostgreSQL for development and tests: Debian's package, in a data directory of its own.
#
#   postgres.sh up          install the package when missing, create the data directory once, start, wait until it answers
#   postgres.sh down        stop, cutting connections that are still open; the data stay
#   postgres.sh kill        stop as a crash would (SIGKILL to the server and its children)
#   postgres.sh stop | cont make all of it hang (SIGSTOP), let it go on (SIGCONT)
#   postgres.sh wipe        stop and delete the data
#   postgres.sh status      exit 0 when it answers
#   postgres.sh sql ARGS... psql on the database, e.g.  postgres.sh sql -c 'SHOW fsync'
#
# Environment: HOGA_WORK (data, logs; default .dev/services in the repository), POSTGRES_PORT (15432), POSTGRES_EXTRA (further server
#   options, such as '-c shared_buffers=1GB').
# Made once: superuser hoga (no password, loopback only), database hoga, in UTF-8 and UTC.
#   URL: postgres://hoga@127.0.0.1:15432/hoga
# Durable as in production: fsync, synchronous_commit and full_page_writes are on.
set -euo pipefail
NAME=postgres
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The newest installed server (the client packages use the same folders); Debian keeps its programs out of PATH.
find_programs() {
  BIN="$({ find /usr/lib/postgresql -path '*/bin/postgres' -printf '%h\n' 2>/dev/null || true; } | sort -V | tail -n 1)"
}

# The server and initdb refuse to run as root; the package's own user is there for that. To be put in front of a command:
# setpriv replaces itself by it, so that the pid file names the server.
UNPRIVILEGED=()
if [ "$(id -u)" = 0 ]; then UNPRIVILEGED=(setpriv --reuid=postgres --regid=postgres --init-groups --); fi

# Where everything is. A repository in root's home is closed to the package's user: then it is in a folder of its own below /var/tmp.
find_place() {
  local open
  DIR="$WORK/postgres"
  if [ "$(id -u)" = 0 ] && id postgres >/dev/null 2>&1; then
    open="$WORK"
    until [ -d "$open" ]; do open=$(dirname "$open"); done
    "${UNPRIVILEGED[@]}" test -x "$open" || DIR="/var/tmp/hoga-postgres-$(printf '%s' "$WORK" | cksum | cut -d' ' -f1)"
  fi
  DATA="$DIR/data"
  PIDFILE="$DIR/pid"
  LOG="$DIR/server.log"
  PORT="${POSTGRES_PORT:-$(cat "$DIR/port" 2>/dev/null || echo 15432)}"
}

answers() { "$BIN/pg_isready" -q -h 127.0.0.1 -p "$PORT"; }
sql() { "$BIN/psql" -X -h 127.0.0.1 -p "$PORT" -U hoga "$@"; }

# A server that was killed stays a zombie until init reaps it, a second or two; the next one would take it for alive.
unreaped() {
  local pid; pid=$(head -n 1 "$DATA/postmaster.pid" 2>/dev/null) || return 1
  [ -e "/proc/$pid" ] && [ -z "$(start_time "$pid")" ]
}

up() {
  local t0 options
  t0=$(date +%s%N)
  if [ -z "$BIN" ]; then need pg_ctlcluster postgresql; find_programs; find_place; fi
  [ -n "$BIN" ] || die "postgresql-common is there but no server: apt-get install postgresql"
  if running "$PIDFILE"; then say "already running on 127.0.0.1:$PORT"; return; fi
  port_free "$PORT" POSTGRES_PORT
  mkdir -p "$DIR"
  if [ "$(id -u)" = 0 ]; then chown postgres: "$DIR"; fi
  "${UNPRIVILEGED[@]}" test -w "$DIR" || die "user postgres cannot write $DIR; set HOGA_WORK to a folder that it can reach"
  cd "$DIR"
  echo "$PORT" >port
  if [ ! -s "$DATA/PG_VERSION" ]; then
    "${UNPRIVILEGED[@]}" "$BIN/initdb" -D "$DATA" -U hoga --auth=trust -E UTF8 --locale=C.UTF-8 >"$DIR/initdb.log" 2>&1 ||
      { tail "$DIR/initdb.log" >&2; die "creating the data directory failed"; }
  fi
  while unreaped; do sleep 0.1; done
  # No unix socket: its path would have to be short. wal_level=logical lets change data capture read the log.
  options=(-D "$DATA" -p "$PORT" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=on -c synchronous_commit=on
    -c full_page_writes=on -c wal_level=logical -c max_connections=200 -c jit=off -c timezone=UTC -c log_timezone=UTC)
  # shellcheck disable=SC2086  # POSTGRES_EXTRA is a list of options
  daemon "$PIDFILE" "$LOG" "${UNPRIVILEGED[@]}" "$BIN/postgres" "${options[@]}" ${POSTGRES_EXTRA:-}
  await 60 "$PIDFILE" "$LOG" "the server" answers
  sql -q -d postgres -v ON_ERROR_STOP=1 <<'SQL'
SELECT 'CREATE DATABASE hoga' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'hoga') \gexec
SQL
  say "ready on 127.0.0.1:$PORT after $(since "$t0"); log $LOG"
}

# The server and its children, one for each connection and task. They share no session, but a parent.
family() {
  local pid
  running "$PIDFILE" || die "the server is not running"
  read -r pid _ <"$PIDFILE"
  echo "$pid"
  ps -o pid= --ppid "$pid"
}
signal() {
  local pids
  mapfile -t pids < <(family)
  kill -"$1" "${pids[@]}" 2>/dev/null || true   # a child may just have ended
}

# The server first, so that it starts no new children meanwhile.
crash() {
  local pids
  mapfile -t pids < <(family)
  kill -STOP "${pids[0]}"
  signal KILL
  while running "$PIDFILE"; do sleep 0.05; done
  rm -f "$PIDFILE"
  say "the server and its children ended by KILL"
}

# INT is a fast shutdown. TERM would wait for every open connection to end by itself. Children that were stopped must go on for it.
down() {
  if running "$PIDFILE"; then signal CONT; fi
  finish "$PIDFILE" "the server" 60 INT
}

find_programs
find_place
case "${1:-}" in
  up) up ;;
  down) down ;;
  kill) crash ;;
  stop) signal STOP ;;
  cont) signal CONT ;;
  wipe) if running "$PIDFILE"; then crash; fi; rm -rf "$DIR" ;;
  status) running "$PIDFILE" && answers && say "ready on 127.0.0.1:$PORT" || { say "not running"; exit 1; } ;;
  sql) shift; sql -d hoga "$@" ;;
  *) die "usage: postgres.sh up | down | kill | stop | cont | wipe | status | sql ARGS..." ;;
esac
