# shellcheck shell=bash
# To be sourced: puts the Node.js that setup.sh fetched, if it did, in front.
NODE_HOME="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.dev/node"
for bin in "$NODE_HOME"/node_modules/node-linux-*/bin; do
  if [ -d "$bin" ]; then export PATH="$bin:$PATH"; fi
done
