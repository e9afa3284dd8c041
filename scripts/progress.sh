# Sourced by the other scripts: builds that say what they do.
#
# build_said WHAT TIME MARK COMMAND… runs a cargo command. Where the directory MARK is missing, nothing was built yet: one line
# says what is coming, and about how long it takes on two cores. On a terminal cargo's own progress shows; elsewhere a line a
# minute says how far it is. All of it goes to stderr: results alone go to stdout.

build_said() {
  local what="$1" time="$2" mark="$3" log pid code=0 last="$SECONDS" begun="$SECONDS"
  shift 3
  if [[ ! -d "$mark" ]]; then
    echo "building $what: about $time on two cores the first time, seconds from then on" >&2
  fi
  if [[ -t 2 ]]; then
    "$@" >&2
    return
  fi
  log="$(mktemp)"
  "$@" >"$log" 2>&1 &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if ((SECONDS - last >= 60)); then
      last="$SECONDS"
      echo "building $what: $(((SECONDS - begun) / 60)) min, $(grep -cE '^ +(Compiling|Checking) ' "$log") crates so far" >&2
    fi
  done
  wait "$pid" || code=$?
  # Warnings and errors; cargo's own progress is of no use any more.
  grep -vE '^ +(Adding|Blocking|Checking|Compiling|Documenting|Downloaded|Downloading|Executable|Finished|Fresh|Generated|Locking|Updating) ' \
    "$log" >&2 || true
  rm -f "$log"
  return "$code"
}
