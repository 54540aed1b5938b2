# shellcheck shell=bash
# How the build scripts talk: one-line errors that say what to do, and long steps whose full output goes to a log.
# Sourced by the scripts beside it; holds no knowledge of what any step does.

readonly LOG_DIR=target/log

# die MESSAGE HINT: the only way a script here gives up.
die() {
    printf 'zeroserve: %s; %s\n' "$1" "$2" >&2
    exit 2
}

# step LABEL LOG COMMAND...: run COMMAND with its output in target/log/LOG. A terminal sees the seconds pass and the
# newest line of the log; anything else gets one line when the step starts and one when it ends.
step() {
    local label=$1 log=$LOG_DIR/$2 began=$SECONDS ticker='' status=0
    shift 2
    mkdir -p "$LOG_DIR"
    if [[ -t 2 ]]; then
        : >"$log"
        # The command stays in the foreground: a background job of a script ignores Ctrl-C.
        tick "$label" "$log" &
        ticker=$!
    else
        printf '%s ...\n' "$label" >&2
    fi
    "$@" >"$log" 2>&1 </dev/null || status=$?
    if [[ -n $ticker ]]; then
        kill "$ticker" 2>/dev/null || true
        wait "$ticker" 2>/dev/null || true
        printf '\r\033[K' >&2
    fi
    ((status == 0)) || give_up "$label" "$log" "$status"
    printf '%s: done in %d s\n' "$label" $((SECONDS - began)) >&2
}

# tick LABEL LOG: one line, rewritten twice a second, until killed or orphaned.
tick() {
    local began=$SECONDS newest width
    while kill -0 $$ 2>/dev/null; do
        newest=$(tail -c 400 "$2" | tr '\r\t' '\n ' | awk 'NF { line = $0 } END { print line }' | tr -cd '[:print:]')
        width=$(tput cols 2>/dev/null || echo 80)
        printf '\r\033[K%.*s' $((width - 1)) "$1 $((SECONDS - began)) s  $newest" >&2
        sleep 0.5
    done
}

# give_up LABEL LOG STATUS: turn the log of a failed step into the one line that helps.
give_up() {
    local label=$1 log=$2 status=$3
    ((status != 130)) || die "$label was interrupted" "run the same command again to go on"
    if grep -qiE 'no space left|not have enough free space' "$log"; then
        die "$label failed: no space left on the disk" "make room and run the same command again (log: $log)"
    fi
    if grep -qiE 'could not resolve|temporary failure in name|name resolution|network is unreachable|failed to fetch|failed to establish|connection (refused|timed out)|could.?n.t connect|unable to (fetch|connect)|spurious network error|failed to download' "$log"; then
        die "$label failed: no network, or a server does not answer" "connect this machine and run the same command again (log: $log)"
    fi
    die "$label failed: $(grep -iE '^(E: |error|ERROR)|error:' "$log" | tail -n 1 | cut -c 1-160)" "the whole output is in $log"
}
