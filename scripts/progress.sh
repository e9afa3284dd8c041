# Sourced by the other scripts: builds with progress reports.
#
# build_with_progress WHAT TIME MARK COMMAND… runs a cargo command. If the directory MARK is missing, this is a first build, and one line
# announces it with the time that it takes at most on two cores. On a terminal cargo shows its own progress; elsewhere one line a minute
# reports how many crates have started, for a first build with the total. All output goes to stderr, because stdout is for results.

# crates_of cargo SUBCOMMAND ARGUMENT… prints the number of crates that the command builds.
crates_of() {
  local edges="normal,build" selected=()
  shift
  while [[ "$1" == --config ]]; do shift 2; done
  shift
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

build_with_progress() {
  local what="$1" time="$2" mark="$3" log progress code=0 last="$SECONDS" begun="$SECONDS" of="" first="" waits="" built
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
  # A separate process reports the progress, so that the shell that runs this function starts no process for each look at the clock: the
  # shell forgets how a child ended as soon as another child gets the same process number.
  (
    while kill -0 "$$" 2>/dev/null; do
      sleep 1
      # Cargo's package cache is common to all directories, so that two builds of one script wait for each other there.
      if [[ -z "$waits" ]] && grep '^ *Blocking ' "$log" | grep -qv 'package cache'; then
        waits=1
        echo "building $what: waiting for another build in the same directory" >&2
      fi
      if ((SECONDS - last >= ${COPPICE_PROGRESS_SECS:-60})); then
        last="$SECONDS"
        # In later builds cargo does not report crates that are already built, so there is no total.
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
  # Keep warnings and errors, without cargo's own progress.
  grep -vE '^ +(Adding|Blocking|Checking|Compiling|Documenting|Downloaded|Downloading|Executable|Finished|Fresh|Generated|Locking|Updating) ' \
    "$log" >&2 || true
  rm -f "$log"
  return "$code"
}
