#!/usr/bin/env bash
# What a fresh Debian machine lacks for building: C and C++ compilers (SQLite and librdkafka are built in), Node.js with npm (the console). Rust must be there.
set -euo pipefail
say() { printf '== %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

command -v cargo >/dev/null || die "no Rust tool chain: install it from https://rustup.rs (1.90 or later), then run this again"

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v c++ >/dev/null || missing+=(g++) # librdkafka, the Kafka client, is built in
command -v make >/dev/null || missing+=(make)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || die "please install: ${missing[*]}"
  [ "$(id -u)" = 0 ] || die "please install as root: apt-get install ${missing[*]}"
  say "installing Debian's ${missing[*]}"
  apt-get -q -y -o DPkg::Lock::Timeout=600 update >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 install --no-install-recommends "${missing[@]}" >/dev/null
fi
# The console's build wants Node.js 20.19 or later; Debian 12 has 18. The registry of npm has the binary as a package: no script runs.
recent() { node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)'; }
# shellcheck source=scripts/path.sh
. "$(dirname "${BASH_SOURCE[0]}")/path.sh"
if ! recent; then
  case "$(uname -m)" in x86_64) arch=x64 ;; aarch64) arch=arm64 ;; *) die "Node.js $(node --version) is too old: 20.19 or later is needed" ;; esac
  say "Node.js $(node --version) is too old for the console's build: fetching a newer one into .dev/node"
  npm install --prefix "$NODE_HOME" --no-audit --no-fund --loglevel=error "node-linux-$arch@22" >/dev/null
  . "$(dirname "${BASH_SOURCE[0]}")/path.sh"
  recent || die "Node.js $(node --version) is too old: 20.19 or later is needed"
fi
