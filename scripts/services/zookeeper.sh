#!/usr/bin/env bash
# Apache ZooKeeper for development and tests, from Maven's jars: one server.
#
#   zookeeper.sh up       fetch the jars once, start, wait until it serves
#   zookeeper.sh down     stop in order; the data stay
#   zookeeper.sh kill     stop as a crash would (SIGKILL)
#   zookeeper.sh stop     make it hang (SIGSTOP): connections stay open and silent
#   zookeeper.sh cont     let it go on (SIGCONT)
#   zookeeper.sh wipe     stop and delete the data
#   zookeeper.sh status   exit 0 when it serves
#   zookeeper.sh pid      its process id
#   zookeeper.sh four W   a four-letter word of the server: srvr, mntr, dump (sessions and their nodes)
#
# It binds to loopback. Environment: HOGA_WORK (data, logs; default .dev/services in the repository), HOGA_CACHE (jars; default ~/.cache/hoga),
#   ZOOKEEPER_PORT (12181), ZOOKEEPER_TICK (ms, 500: sessions last from 2 to 20 ticks), ZOOKEEPER_HEAP (128m).
set -euo pipefail
NAME=zookeeper
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

LIB="$CACHE/zookeeper-jars"
DIR="$WORK/zookeeper"
PIDFILE="$DIR/pid"
LOG="$DIR/server.log"
PORT="${ZOOKEEPER_PORT:-$(cat "$DIR/port" 2>/dev/null || echo 12181)}"

# Sends a four-letter word and prints the answer; a server that is silent for 5 s has none.
four() { (exec 3<>"/dev/tcp/127.0.0.1/$PORT" && printf '%s' "$1" >&3 && timeout 5 cat <&3) 2>/dev/null; }
# `ruok` is answered before requests are: only a server that names its mode serves.
serving() { four srvr | grep -q '^Mode:'; }

up() {
  local t0; t0=$(date +%s%N)
  need java default-jre-headless
  jars "$HERE/zookeeper-pom.xml" "$LIB"
  if running "$PIDFILE"; then say "already running on 127.0.0.1:$PORT"; return; fi
  port_free "$PORT" ZOOKEEPER_PORT
  mkdir -p "$DIR/data"
  echo "$PORT" >"$DIR/port"
  # The admin server would want another library and another port.
  cat >"$DIR/zoo.cfg" <<CONF
dataDir=$DIR/data
clientPort=$PORT
clientPortAddress=127.0.0.1
tickTime=${ZOOKEEPER_TICK:-500}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
CONF
  daemon "$PIDFILE" "$LOG" java "-Xmx${ZOOKEEPER_HEAP:-128m}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dzookeeper.preAllocSize=1024 \
    -cp "$LIB/*" org.apache.zookeeper.server.ZooKeeperServerMain "$DIR/zoo.cfg"
  await 30 "$PIDFILE" "$LOG" "the server" serving
  say "ready on 127.0.0.1:$PORT after $(since "$t0"); log $LOG"
}

case "${1:-}" in
  up) up ;;
  down) finish "$PIDFILE" "the server" 20 ;;
  kill) finish "$PIDFILE" "the server" 5 KILL ;;
  stop) send "$PIDFILE" "the server" STOP ;;
  cont) send "$PIDFILE" "the server" CONT ;;
  wipe) finish "$PIDFILE" "the server" 5 KILL; rm -rf "$DIR" ;;
  status) running "$PIDFILE" && serving && say "ready on 127.0.0.1:$PORT" || { say "not running"; exit 1; } ;;
  pid) running "$PIDFILE" || die "the server is not running"; cut -d' ' -f1 "$PIDFILE" ;;
  four) four "$2"; echo ;;
  *) die "usage: zookeeper.sh up | down | kill | stop | cont | wipe | status | pid | four WORD" ;;
esac
