#!/usr/bin/env bash
# What a fresh Debian machine lacks for building: a C compiler (SQLite is built in), Node.js with npm (the console). Rust must be there.
set -euo pipefail
say() { printf '== %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

command -v cargo >/dev/null || die "no Rust tool chain: install it from https://rustup.rs (1.90 or later), then run this again"

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || die "please install: ${missing[*]}"
  [ "$(id -u)" = 0 ] || die "please install as root: apt-get install ${missing[*]}"
  say "installing Debian's ${missing[*]}"
  apt-get -q -y -o DPkg::Lock::Timeout=600 update >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 install --no-install-recommends "${missing[@]}" >/dev/null
fi
major=$(node --version | sed 's/v\([0-9]*\).*/\1/')
[ "$major" -ge 18 ] || die "Node.js $(node --version) is too old for the console's build: 18 or later is needed"
