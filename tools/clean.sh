#!/usr/bin/env bash
# Removes what make made. results/ stays: it holds measurements, not products.
set -euo pipefail
cd "$(dirname "$0")/.."

rm -rf target .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis
rm -f xdp/*.bpf.o experiments/*.bpf.o appliance/site.tar zeroserve/_engine.*.so
find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
