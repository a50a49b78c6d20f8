# shellcheck shell=bash
# Shared by the scripts of this folder: messages, waiting on conditions, daemons with pid files, jars.
# To be sourced after `set -euo pipefail`, with NAME set to the calling script's name.

# shellcheck disable=SC2034  # used by the scripts that source this file
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck disable=SC2034
WORK="$(realpath -m "${HOGA_WORK:-$HERE/../../.dev/services}")"   # data, configuration, logs and pid files
# shellcheck disable=SC2034
CACHE="${HOGA_CACHE:-$HOME/.cache/hoga}"                          # downloaded jars, kept between runs

say() { printf '%s: %s\n' "$NAME" "$*"; }
die() { printf '%s: %s\n' "$NAME" "$*" >&2; exit 1; }

# Seconds with two decimals since the time in $1 (as printed by `date +%s%N`).
since() { local ms=$(( ($(date +%s%N) - $1) / 1000000 )); printf '%d.%02d s' $((ms / 1000)) $((ms % 1000 / 10)); }

# listening PORT: does something on loopback accept a connection?
listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# port_free PORT VARIABLE: fail when another process has the port. A process killed a moment ago may hold it a little longer.
port_free() {
  local end=$((SECONDS + 5))
  while listening "$1"; do
    [ "$SECONDS" -lt "$end" ] || die "port $1 is taken by another process; set $2"
    sleep 0.1
  done
}

# running PIDFILE: is the process recorded there alive, and still the one that was started?
# A pid file may outlive its process and the number be given away again, hence the start time beside it. A process that
# died but was not yet reaped by its parent (state Z) does not count.
running() {
  local pid started
  [ -s "$1" ] || return 1
  read -r pid started <"$1"
  [ "$(start_time "$pid")" = "$started" ]
}
# Fields 3 and 22 of /proc/PID/stat; field 2 is a name in brackets and may hold anything.
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'; }

# daemon PIDFILE LOG COMMAND...: start COMMAND detached, in its own session, its output in LOG. It inherits no other open
# file: a daemon would keep a lock (flock) or a pipe of its caller for as long as it lives.
daemon() {
  local pidfile=$1 log=$2 pid fd; shift 2
  (
    for fd in /proc/self/fd/*; do
      fd=${fd##*/}
      if [ "$fd" -gt 2 ] && [ "$fd" -lt 255 ]; then eval "exec $fd>&-"; fi
    done
    exec setsid "$@"
  ) >"$log" 2>&1 </dev/null &
  pid=$!
  echo "$pid $(start_time "$pid")" >"$pidfile"
}

# await SECONDS PIDFILE LOG WHAT COMMAND...: wait until COMMAND succeeds; fail at once if the process dies.
await() {
  local limit=$1 pidfile=$2 log=$3 what=$4; shift 4
  local end=$((SECONDS + limit))
  until "$@" >/dev/null 2>&1; do
    if ! running "$pidfile"; then tail -n 20 "$log" >&2; die "$what stopped while starting; its log is $log"; fi
    if [ "$SECONDS" -ge "$end" ]; then tail -n 20 "$log" >&2; die "$what not ready after $limit s; its log is $log"; fi
    sleep 0.05
  done
}

# finish PIDFILE WHAT SECONDS [SIGNAL]: end the process with SIGNAL (TERM), and with KILL when it takes longer than SECONDS.
finish() {
  local pidfile=$1 what=$2 limit=$3 signal=${4:-TERM} pid t0 end
  if ! running "$pidfile"; then rm -f "$pidfile"; say "$what is not running"; return; fi
  read -r pid _ <"$pidfile"
  t0=$(date +%s%N) end=$((SECONDS + limit))
  kill -"$signal" "$pid"
  kill -CONT "$pid" 2>/dev/null || true   # one that is stopped would not notice
  while running "$pidfile"; do
    if [ "$SECONDS" -ge "$end" ]; then say "$what still runs after $limit s, killing it"; kill -KILL "$pid" || true; end=$((SECONDS + 5)); fi
    sleep 0.05
  done
  rm -f "$pidfile"
  say "$what ended by $signal in $(since "$t0")"
}

# send PIDFILE WHAT SIGNAL: STOP makes a process hang as it is, its connections open and silent; CONT lets it go on.
send() {
  local pid
  running "$1" || die "$2 is not running"
  read -r pid _ <"$1"
  kill -"$3" "$pid"
}

# need COMMAND PACKAGE: make sure that a Debian package's command is there, installing it when we may.
need() {
  command -v "$1" >/dev/null && return
  command -v apt-get >/dev/null || die "$1 is missing: please install $2"
  [ "$(id -u)" = 0 ] || die "$1 is missing; as root: apt-get install $2"
  say "installing Debian's $2"
  local apt=(apt-get -q -y -o DPkg::Lock::Timeout=600)   # wait, should another apt-get hold the lock
  "${apt[@]}" update >/dev/null
  DEBIAN_FRONTEND=noninteractive "${apt[@]}" install --no-install-recommends "$2" >/dev/null
  command -v "$1" >/dev/null || die "$2 was installed but has no $1"
}

# jars POM DIR: put the runtime jars of a Maven file into DIR, unless they are there already for this very file. One at a time.
jars() {
  local pom=$1 dir=$2 sum t0
  sum=$(sed 's/<!--.*-->//' "$pom" | sha256sum | cut -c1-64)
  [ "$(cat "$dir/.complete" 2>/dev/null || true)" = "$sum" ] && return
  command -v mvn >/dev/null || need mvn maven
  mkdir -p "$(dirname "$dir")"
  exec 9>"$dir.lock"
  flock 9
  if [ "$(cat "$dir/.complete" 2>/dev/null || true)" != "$sum" ]; then
    t0=$(date +%s%N)
    say "fetching the jars of $(basename "$pom")"
    rm -rf "$dir"; mkdir -p "$dir"
    mvn -B -ntp -q -f "$pom" dependency:copy-dependencies -DoutputDirectory="$dir" -DincludeScope=runtime >"$dir/.mvn.log" 2>&1 ||
      { tail -n 20 "$dir/.mvn.log" >&2; die "Maven failed"; }
    echo "$sum" >"$dir/.complete"
    say "$(find "$dir" -name '*.jar' | wc -l) jars, $(du -sm "$dir" | cut -f1) MB, in $(since "$t0")"
  fi
  exec 9>&-
}
