#!/usr/bin/env bash
# Makes .venv anew from Debian's Python and the two lock files. System site packages stay visible, because BCC comes
# from Debian only; everything locked is installed again in front of them (Debian 12's own cryptography is version 38).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/say.sh
source tools/say.sh

create() {
    /usr/bin/python3 -m venv --system-site-packages --clear .venv
    .venv/bin/python -m pip install --disable-pip-version-check --no-input --no-deps --ignore-installed \
        --require-hashes -r requirements.lock -r requirements-dev.lock
}

step "making .venv" venv.log create
