# Sourced by run-clients.sh and run-browser.sh: installs what a fresh Debian machine (as root) lacks for them, and says so. Everything
# but Debian's own packages goes into .dev/ of the checkout and is pinned in this folder: package-lock.json and requirements.txt.
#
#   install_node      Node.js 20.19 or later: the one on the PATH, else what scripts/setup.sh fetches (Debian 12 has 18)
#   install_npm       ccxt and playwright-core into .dev/npm; sets HOGA_NPM
#   install_python    ccxt and python-binance into .dev/python; sets HOGA_PYTHON
#   install_chromium  Debian's chromium; sets HOGA_CHROMIUM

SETUP="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
DEV="${HOGA_DEV:-$(cd "$SETUP/../.." && pwd)/.dev}"
mkdir -p "$DEV"

say() { printf '== %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# debian PACKAGE...: installs Debian's packages.
debian() {
  command -v apt-get >/dev/null || die "please install $* by hand: this is no Debian machine"
  [ "$(id -u)" = 0 ] || die "please install as root: apt-get install $*"
  say "installing Debian's $*"
  apt-get -q -y -o DPkg::Lock::Timeout=600 update >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 install --no-install-recommends "$@" >"$DEV/apt.log" 2>&1 ||
    { tail -n 5 "$DEV/apt.log" >&2; die "Debian's $* could not be installed"; }
}

# A virtual environment at $1, made once.
python_environment() {
  [ -x "$1/bin/pip" ] && return
  python3 -c 'import ensurepip, venv' 2>/dev/null || debian python3 python3-venv
  rm -rf "$1"
  python3 -m venv "$1"
}

node_is_new_enough() {
  command -v node >/dev/null && command -v npm >/dev/null &&
    node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)'
}

install_node() {
  . "$SETUP/../../scripts/path.sh"
  node_is_new_enough && return
  "$SETUP/../../scripts/setup.sh"
  . "$SETUP/../../scripts/path.sh"
  node_is_new_enough || die "Node.js 20.19 or later is needed"
}

install_npm() {
  export HOGA_NPM="$DEV/npm"
  cmp -s "$SETUP/package-lock.json" "$HOGA_NPM/package-lock.json" && [ -f "$HOGA_NPM/complete" ] && return
  say "installing ccxt and playwright-core from npm into $HOGA_NPM"
  mkdir -p "$HOGA_NPM"
  rm -f "$HOGA_NPM/complete"
  cp "$SETUP/package.json" "$SETUP/package-lock.json" "$SETUP/.npmrc" "$HOGA_NPM/"
  npm ci --prefix "$HOGA_NPM" --no-audit --no-fund --ignore-scripts --loglevel=error >"$DEV/npm.log" 2>&1 ||
    { tail -n 5 "$DEV/npm.log" >&2; die "npm could not install"; }
  touch "$HOGA_NPM/complete"
}

install_python() {
  export HOGA_PYTHON="$DEV/python/bin/python3"
  cmp -s "$SETUP/requirements.txt" "$DEV/python/complete" && return
  say "installing ccxt and python-binance from PyPI into $DEV/python"
  python_environment "$DEV/python"
  "$DEV/python/bin/pip" install --quiet --disable-pip-version-check -r "$SETUP/requirements.txt"
  cp "$SETUP/requirements.txt" "$DEV/python/complete"
}

install_chromium() {
  local found
  for found in "${HOGA_CHROMIUM:-}" chromium chromium-browser google-chrome; do
    [ -n "$found" ] && command -v "$found" >/dev/null && { HOGA_CHROMIUM="$(command -v "$found")"; export HOGA_CHROMIUM; return; }
  done
  debian chromium fonts-dejavu-core
  HOGA_CHROMIUM="$(command -v chromium)"
  export HOGA_CHROMIUM
}
