#!/usr/bin/env bash
# Builds the one wheel from the locked Rust dependencies, checks what it carries, and installs it into .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/say.sh
source tools/say.sh

cargo=$(tools/toolchain.sh)
export PATH="$cargo:$PATH"

build() {
    rm -rf target/wheels
    # It is installed on the machine that built it, so there is nothing to repair for older systems.
    .venv/bin/maturin build --release --locked --compatibility linux --interpreter .venv/bin/python --out target/wheels
}

install() {
    .venv/bin/python tools/check_wheel.py target/wheels/*.whl
    .venv/bin/python -m pip install --disable-pip-version-check --no-index --no-deps --force-reinstall target/wheels/*.whl
}

step "building the wheel" wheel.log build
step "installing the wheel" install.log install
