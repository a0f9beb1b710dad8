# What the set-up scripts share: one line a step for the reader, the noise in a log. To be sourced.

log=.venv/setup.log

say() {
    echo "setup: $*" >&2
}

# The fact, then what to do; each argument is a line.
stop() {
    local line
    for line in "$@"; do
        echo "setup: $line" >&2
    done
    exit 1
}

# Runs a command with its output in the log; if it fails, shows the end of the log and stops.
quietly() {
    mkdir -p "$(dirname "$log")"
    echo "+ $*" >>"$log"
    if ! "$@" >>"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        stop "failed: $*" "the lines above are the end of $log"
    fi
}
