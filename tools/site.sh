#!/usr/bin/env bash
# Packs the appliance's built-in site from its sources, before the wheel that carries it: a flashed board has no clang.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/say.sh
source tools/say.sh

# With the sources' own packer, as no wheel exists yet; packing needs no engine.
pack() {
    PYTHONPATH=$PWD .venv/bin/python -P -m zeroserve --pack appliance/site >appliance/site.tar.part
    mv appliance/site.tar.part appliance/site.tar
}

step "packing the built-in site" site.log pack
