#!/usr/bin/env bash
# Apache Kafka for development and tests, from Maven's jars: one node, or three (each broker and controller in one JVM, KRaft).
#
#   kafka.sh up [N]             fetch the jars once, format the storage once, start, wait until a record made a round trip
#   kafka.sh down [N]           stop in order; the data stay
#   kafka.sh kill [N]           stop as a crash would (SIGKILL)
#   kafka.sh stop [N]           make it hang (SIGSTOP): connections stay open and silent
#   kafka.sh cont [N]           let it go on (SIGCONT)
#   kafka.sh wipe               stop and delete the data
#   kafka.sh status             exit 0 when a record makes a round trip, 1 otherwise
#   kafka.sh pid [N]            the process id of a node (1)
#   kafka.sh leader TOPIC [P]   the node that leads partition P (0) of a topic
#   kafka.sh tool NAME ARGS...  a command-line tool, e.g.  kafka.sh tool topics --list
#
# N is a node, from 1; without it the command is for all of them. All bind to loopback.
# Environment: KAFKA_NODES (1 or 3; what `up` was told stays in force), HOGA_WORK (data, logs; default .dev/services in the repository),
#   HOGA_CACHE (jars; default ~/.cache/hoga), KAFKA_PORT (19092; node N has 10 more for each before it), KAFKA_CONTROLLER_PORT
#   (KAFKA_PORT + 1, and so on), KAFKA_HEAP (512m for one node, 256m for each of three), KAFKA_JVM (further JVM flags; -XX:TieredStopAtLevel=1
#   starts faster and is right for tests, not for measurements), KAFKA_LOG (log level, info), TOOL_JVM (JVM flags of `tool`),
#   KAFKA_EXTRA (further lines for server.properties, separated by newlines).
set -euo pipefail
NAME=kafka
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

LIB="$CACHE/kafka-node-jars"
DIR="$WORK/kafka"
TOPIC=__ready                       # carries the round-trip records; one partition

# What the last `up` was told, so that the other commands need not be told again.
remembered() { cat "$DIR/$1" 2>/dev/null || echo "$2"; }
NODES="${KAFKA_NODES:-$(remembered nodes 1)}"
PORT="${KAFKA_PORT:-$(remembered port 19092)}"
CONTROLLER_PORT="${KAFKA_CONTROLLER_PORT:-$(remembered controller-port $((PORT + 1)))}"
case "$NODES" in 1) HEAP="${KAFKA_HEAP:-512m}" ;; 3) HEAP="${KAFKA_HEAP:-256m}" ;; *) die "KAFKA_NODES is 1 or 3, not '$NODES'" ;; esac

port_of() { echo $((PORT + 10 * ($1 - 1))); }
controller_of() { echo $((CONTROLLER_PORT + 10 * ($1 - 1))); }
pid_of() { echo "$DIR/node-$1/pid"; }
log_of() { echo "$DIR/node-$1/server.log"; }
all() { seq 1 "$NODES"; }
bootstrap() { for n in $(all); do printf '%s127.0.0.1:%s' "$([ "$n" = 1 ] || echo ,)" "$(port_of "$n")"; done; }
java_kafka() { java -cp "$LIB/*" "$@"; }

configure() {
  local n=$1 dir="$DIR/node-$1" replicas=$NODES insync=$((NODES / 2 + 1)) quorum voters=""
  if [ "$NODES" = 1 ]; then
    quorum="controller.quorum.bootstrap.servers=127.0.0.1:$CONTROLLER_PORT"
  else
    for m in $(all); do voters+="${voters:+,}$m@127.0.0.1:$(controller_of "$m")"; done
    quorum="controller.quorum.voters=$voters"
  fi
  mkdir -p "$dir"
  cat >"$dir/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=$n
$quorum
listeners=PLAINTEXT://127.0.0.1:$(port_of "$n"),CONTROLLER://127.0.0.1:$(controller_of "$n")
advertised.listeners=PLAINTEXT://127.0.0.1:$(port_of "$n")
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$dir/data
# Few partitions of the internal topics, since each costs files and start-up time; as many replicas as nodes.
default.replication.factor=$replicas
min.insync.replicas=$insync
offsets.topic.replication.factor=$replicas
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=$replicas
transaction.state.log.min.isr=$insync
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=$replicas
share.coordinator.state.topic.min.isr=$insync
share.coordinator.state.topic.num.partitions=4
# A test's first member need not wait for others (3 s by default).
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=true
num.partitions=1
# A broker that was killed may only return once its old registration has expired (9 s by default), and one that is away is noticed by
# the others after this time: keep it short.
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
replica.lag.time.max.ms=3000
controller.quorum.election.timeout.ms=500
controller.quorum.fetch.timeout.ms=1000
${KAFKA_EXTRA:-}
PROPERTIES
}

# A record goes to the topic and comes back: the only sign of readiness that a client can rely on.
round_trip() {
  local mark; mark="$(date +%s%N)-$$"
  echo "$mark" | timeout 10 kcat -P -b "$(bootstrap)" -t "$TOPIC" -X message.timeout.ms=3000 -X log.connection.close=false -q &&
    timeout 10 kcat -C -b "$(bootstrap)" -t "$TOPIC" -o -1 -c 1 -q -X log.connection.close=false 2>/dev/null | grep -q "$mark"
}

# A cluster id is 16 bytes in URL-safe base64 without padding, not beginning with '-'.
cluster_id() { printf 'h%s' "$(head -c 16 /dev/urandom | base64 | tr '+/' 'AB' | cut -c1-20)g"; }

start() {
  local n=$1 dir="$DIR/node-$1" standalone=()
  port_free "$(port_of "$n")" KAFKA_PORT
  port_free "$(controller_of "$n")" KAFKA_CONTROLLER_PORT
  configure "$n"
  if [ ! -f "$dir/data/meta.properties" ]; then
    [ -s "$DIR/cluster-id" ] || cluster_id >"$DIR/cluster-id"
    [ "$NODES" != 1 ] || standalone=(--standalone)
    java_kafka -XX:TieredStopAtLevel=1 -XX:+UseSerialGC kafka.tools.StorageTool format "${standalone[@]}" \
      -t "$(cat "$DIR/cluster-id")" -c "$dir/server.properties" >"$dir/format.log" 2>&1 ||
      { cat "$dir/format.log" >&2; die "formatting the storage failed"; }
  fi
  # shellcheck disable=SC2086  # KAFKA_JVM is a list of flags
  daemon "$(pid_of "$n")" "$(log_of "$n")" java -Xms"$HEAP" -Xmx"$HEAP" -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto \
    ${KAFKA_JVM:-} -Dorg.slf4j.simpleLogger.defaultLogLevel="${KAFKA_LOG:-info}" \
    -Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.dateTimeFormat="yyyy-MM-dd HH:mm:ss.SSS" \
    -cp "$LIB/*" kafka.Kafka "$dir/server.properties"
}

up() {
  local t0 n last=1; t0=$(date +%s%N)
  need kcat kcat
  need java default-jre-headless
  jars "$HERE/kafka-pom.xml" "$LIB"
  mkdir -p "$DIR"
  [ "$(remembered nodes "$NODES")" = "$NODES" ] || die "there are the data of $(remembered nodes 1) node(s) in $DIR: wipe first"
  echo "$NODES" >"$DIR/nodes"
  echo "$PORT" >"$DIR/port"
  echo "$CONTROLLER_PORT" >"$DIR/controller-port"
  for n in "$@"; do
    last=$n
    running "$(pid_of "$n")" || start "$n"
  done
  for n in "$@"; do await 60 "$(pid_of "$n")" "$(log_of "$n")" "node $n" listening "$(port_of "$n")"; done
  await 60 "$(pid_of "$last")" "$(log_of "$last")" "node $last" round_trip
  say "ready on $(bootstrap) after $(since "$t0"); logs $DIR/node-*/server.log"
}

status() {
  local n any=""
  for n in $(all); do if running "$(pid_of "$n")"; then any=1; else say "node $n is not running"; fi; done
  [ -n "$any" ] || return 1
  round_trip || { say "a record makes no round trip; see $DIR/node-*/server.log"; return 1; }
  say "ready on $(bootstrap)"
}

leader() {
  local found
  found=$(timeout 20 kcat -L -b "$(bootstrap)" -t "$1" -X log.connection.close=false 2>/dev/null |
    sed -n "s/.*partition ${2:-0}, leader \(-\?[0-9]*\),.*/\1/p" | head -n 1)
  [ -n "$found" ] || die "no node tells who leads partition ${2:-0} of $1"
  echo "$found"
}

tool() {
  local name=$1 class; shift
  case "$name" in
    topics) class=org.apache.kafka.tools.TopicCommand ;;
    configs) class=org.apache.kafka.tools.ConfigCommand ;;
    consumer-groups) class=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand ;;
    groups) class=org.apache.kafka.tools.GroupsCommand ;;
    features) class=org.apache.kafka.tools.FeatureCommand ;;
    get-offsets) class=org.apache.kafka.tools.GetOffsetShell ;;
    console-producer) class=org.apache.kafka.tools.ConsoleProducer ;;
    console-consumer) class=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
    producer-perf) class=org.apache.kafka.tools.ProducerPerformance ;;
    consumer-perf) class=org.apache.kafka.tools.ConsumerPerformance ;;
    e2e-latency) class=org.apache.kafka.tools.EndToEndLatency ;;
    dump-log) class=org.apache.kafka.tools.DumpLogSegments ;;
    *.*) class=$name ;;                                   # any other main class by its full name
    *) die "unknown tool $name" ;;
  esac
  local server=()
  case "$name" in producer-perf | e2e-latency | dump-log | *.*) ;; *) server=(--bootstrap-server "$(bootstrap)") ;; esac
  # shellcheck disable=SC2086  # TOOL_JVM is a list of flags
  exec java -Xmx512m -XX:+UseSerialGC ${TOOL_JVM:--XX:TieredStopAtLevel=1} -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
    -cp "$LIB/*" "$class" "${server[@]}" "$@"
}

command=${1:-}
[ $# -eq 0 ] || shift
case "$command" in
  up | down | kill | stop | cont)
    if [ $# -gt 0 ]; then
      { [ "$1" -ge 1 ] && [ "$1" -le "$NODES" ]; } 2>/dev/null || die "there is no node $1: they are 1 to $NODES"
      nodes=("$1")
    else
      mapfile -t nodes < <(all)
    fi ;;
esac
case "$command" in
  up) up "${nodes[@]}" ;;
  # All at once: without a majority of controllers one that ends last would wait for an orderly end in vain.
  down) for n in "${nodes[@]}"; do finish "$(pid_of "$n")" "node $n" 20 & done; wait ;;
  kill) for n in "${nodes[@]}"; do finish "$(pid_of "$n")" "node $n" 20 KILL; done ;;
  stop) for n in "${nodes[@]}"; do send "$(pid_of "$n")" "node $n" STOP; done ;;
  cont) for n in "${nodes[@]}"; do send "$(pid_of "$n")" "node $n" CONT; done ;;
  wipe) for n in 1 2 3; do if [ -e "$(pid_of "$n")" ]; then finish "$(pid_of "$n")" "node $n" 20 KILL; fi; done; rm -rf "$DIR" ;;
  status) status ;;
  pid) running "$(pid_of "${1:-1}")" || die "node ${1:-1} is not running"; cut -d' ' -f1 "$(pid_of "${1:-1}")" ;;
  leader) [ $# -gt 0 ] || die "of which topic?"; leader "$@" ;;
  tool) [ $# -gt 0 ] || die "which tool?"; tool "$@" ;;
  *) die "usage: kafka.sh up [N] | down [N] | kill [N] | stop [N] | cont [N] | wipe | status | pid [N] | leader TOPIC [P] | tool NAME ARGS..." ;;
esac
