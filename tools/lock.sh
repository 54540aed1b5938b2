#!/usr/bin/env bash
# Resolves the dependencies of pyproject.toml anew into the two lock files, for Python 3.11 and later on every platform,
# with the hash of each file. Which index the files come from is left to the machine that installs them.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/say.sh
source tools/say.sh

compile() {
    local options=(--quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --upgrade
        --custom-compile-command "make lock")
    [[ -x .tools/uv/bin/uv ]] || .venv/bin/python -m pip install --quiet --target .tools/uv uv
    .tools/uv/bin/uv pip compile "${options[@]}" pyproject.toml --output-file requirements.lock
    .tools/uv/bin/uv pip compile "${options[@]}" --group dev --constraints requirements.lock \
        --output-file requirements-dev.lock
}

step "resolving the dependencies" lock.log compile
