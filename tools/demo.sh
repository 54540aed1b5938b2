#!/usr/bin/env bash
# Runs the main job in the built-in lab, short enough to watch, and makes sure that it left nothing behind.
# Arguments are given to zs-experiment; a later option overrides an earlier one.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/say.sh
source tools/say.sh

before=$(tools/leftovers.sh)
.venv/bin/zs-experiment run --pps 50000 --duration 5 --settle 0.5 "$@"
left=$(comm -13 <(sort <<<"$before") <(tools/leftovers.sh | sort))
[[ -z $left ]] || die "the run left behind: ${left//$'\n'/, }" "run: .venv/bin/zs-appliance down; and report this"
