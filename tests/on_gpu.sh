#!/usr/bin/env bash
# Everything that a machine with a GPU must show, in one go, with the Python that is
# there: nothing is installed. Usage: tests/on_gpu.sh [tests] [bench] [grade]
# Results go to $OUT (default: grades/gpu). Goes on past a failure; exits with their
# number.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHON="${PYTHON:-python3}"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
out="${OUT:-grades/gpu}"
mkdir -p "$out"
failed=0

step() { # name, command …
  local name="$1" began=$SECONDS
  shift
  echo "== $name: $*"
  "$@" 2>&1 | tee "$out/$name.log" | tail -n "${LINES_SHOWN:-25}"
  local status=${PIPESTATUS[0]}
  echo "-- $name: exit $status, $((SECONDS - began)) s"
  ((status == 0)) || failed=$((failed + 1))
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
for part in "${@:-tests bench grade}"; do
  for what in $part; do
    case "$what" in
      tests) step tests "$PYTHON" -m pytest -m gpu -q tests --timeout 240 ;;
      bench)
        step bench "$PYTHON" -m benchmarks vector_add transpose profiling
        cp benchmarks/results/*.json "$out/"
        ;;
      grade)
        step grade make --no-print-directory grade SUBMISSION=solutions OUT="$out/solutions"
        ;;
      *) echo "no step $what: tests, bench, grade" >&2; failed=$((failed + 1)) ;;
    esac
  done
done
exit "$failed"
