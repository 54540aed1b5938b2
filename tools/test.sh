#!/usr/bin/env bash
# Runs every test of the project: the engine's own in Rust, then everything under tests/. The last line printed is
# pytest's closing line, unless something was left in the system. Arguments are given to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/say.sh
source tools/say.sh

cargo=$(tools/toolchain.sh)
export PATH="$cargo:$PATH"
before=$(tools/leftovers.sh)
status=0

step "building the engine's tests" cargo-test.log cargo test --release --locked --no-run
cargo test --release --locked --quiet || status=$?
.venv/bin/pytest "$@" || status=$?

left=$(comm -13 <(sort <<<"$before") <(tools/leftovers.sh | sort))
[[ -z $left ]] || die "the tests left behind: ${left//$'\n'/, }" "find the test that made it; each cleans up after itself"
exit "$status"
