#!/usr/bin/env bash
# Builds the console into web/dist when its sources are newer than the last build.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/path.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/../web"
if [ ! -d node_modules ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  echo "== fetching the console's libraries (npm ci)"
  npm ci --no-audit --no-fund --loglevel=error
fi
if [ -f dist/index.html ] && [ -z "$(find src index.html public vite.config.ts package.json -newer dist/index.html -print -quit 2>/dev/null)" ]; then
  echo "== the console is up to date"
  exit 0
fi
echo "== building the console"
npm run --silent build
