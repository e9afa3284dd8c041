# Sourced by the other scripts: builds that say what they do.
#
# build_said WHAT TIME MARK COMMAND… runs a cargo command. Where the directory MARK is missing, nothing was built yet: one line
# says what is coming, and within what time two cores finish it. On a terminal cargo's own progress shows; elsewhere a line a
# minute says how many crates are begun, of a first build of how many. All of it goes to stderr: results alone go to stdout.

# crates_of cargo SUBCOMMAND ARGUMENT… prints how many crates that command builds.
crates_of() {
  local edges="normal,build" selected=()
  shift 2
  while (($#)); do
    case "$1" in
      -p | --package | --features | --manifest-path | --target) selected+=("$1" "$2"); shift ;;
      --workspace | --no-default-features | --locked) selected+=("$1") ;;
      --all-targets | --no-run) edges="normal,build,dev" ;;
      --) break ;;
    esac
    shift
  done
  cargo tree "${selected[@]}" --edges "$edges" --prefix none --format '{p}' 2>/dev/null | awk 'NF { print $1, $2 }' | sort -u | wc -l
}

build_said() {
  local what="$1" time="$2" mark="$3" log progress code=0 last="$SECONDS" begun="$SECONDS" of="" first="" built
  shift 3
  if [[ ! -d "$mark" ]]; then
    first=1
    echo "building $what: within $time on two cores the first time, seconds from then on" >&2
  fi
  if [[ -t 2 ]]; then
    "$@" >&2
    return
  fi
  log="$(mktemp)"
  # Says how far the build is from a process of its own: the shell that calls this one starts no process for each look at the
  # clock, because it forgets how a child of its ended as soon as another child gets that child's number.
  (
    while kill -0 "$$" 2>/dev/null; do
      sleep 1
      if ((SECONDS - last >= ${COPPICE_PROGRESS_SECS:-60})); then
        last="$SECONDS"
        # Later cargo says nothing of those that are built already.
        if [[ -n "$first" && -z "$of" ]]; then of=" of $(crates_of "$@")"; fi
        built="$(awk '/^ +(Compiling|Checking) / { print $2, $3 }' "$log" | sort -u | wc -l)"
        echo "building $what: $(((SECONDS - begun) / 60)) min, crates begun: $built$of" >&2
      fi
    done
  ) &
  progress=$!
  "$@" >"$log" 2>&1 || code=$?
  kill "$progress" 2>/dev/null || true
  wait "$progress" 2>/dev/null || true
  # Warnings and errors; cargo's own progress is of no use any more.
  grep -vE '^ +(Adding|Blocking|Checking|Compiling|Documenting|Downloaded|Downloading|Executable|Finished|Fresh|Generated|Locking|Updating) ' \
    "$log" >&2 || true
  rm -f "$log"
  return "$code"
}
