#!/usr/bin/env bash
# What a machine with a GPU must show, step by step, each by its own limit, with the
# Python that is there: nothing is installed, and neither network nor Jupyter is needed.
# Results go to $OUT (default: grades/gpu): summary.txt and gpu.tar.gz, which holds the
# logs and whatever was stored, by its path in the repository.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHON="${PYTHON:-python3}" PYTHONUNBUFFERED=1
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
# What is measured here is what the book shows.
export KERNELWRIGHT_RESULTS="$PWD/benchmarks/results"
out="${OUT:-grades/gpu}"
dry="${DRY:-}"

# A step's name, its limit in seconds, the last lines of its log that are shown, and what
# it is for. What runs stands in run_of.
steps() {
  cat <<'EOF'
probe            25 40 which versions of Python, torch, Triton, CuPy, nvcc, ncu, pytest
sweep-softmax   165 80 the settings of softmax's launch, each beside today's
launch          160 45 what a call costs the CPU, by family
as-called       120 16 the families as a user times them, host time beside
softmax-tests   150 12 all tests of softmax: many choose the GPU without its mark
softmax-counters 120 12 softmax under Nsight Compute
sweep-fusion     90 80 the launches of fused kernels, each beside today's
sweep-int4       90 80 the tiles of products with four bits, each beside today's
sweep-moe        60 60 the parts of a layer of experts, one by one
columns         150 30 all of benchmarks.reduction: sums down columns are among them
attention-bench 255 60 chapter 10's kernels beside cuDNN and FA2, against their floors
attention-counters 75 12 chapter 10's kernels under Nsight Compute
transformer-bench 330 60 a whole model beside torch: five programs are compiled
unmarked-tests   85 12 tests of chapters 1 and 10 that choose the GPU without its mark
tests           520 60 every test that is marked gpu, side by side, less the speed judge's
speed-gold      560 60 the speed judge: every solution's band
speed-cheaters  420 60 the speed judge: cheaters, and what ends badly
backward-tests  100 12 the one-pass backward of attention
bench1          575 90 all that have a floor: attention, the whole model
bench2          575 90 likewise: fused kernels, products, experts
bench3          575 90 likewise: all others
grade           590 60 make grade of the reference solutions
cpu-grade       560 60 make grade of them by the emulator, beside the GPU
cpu-autograder  560 60 the autograder's tests, as on a machine without a GPU
cpu-tests       560 60 all other tests, likewise
EOF
}

# A family's own steps, beside those: its benchmark, and the grade of its solutions.
steps_of() { # name
  local stem="${1%-*}"
  [[ -f "benchmarks/$stem.py" ]] || return 0
  case "$1" in
    transformer-bench) ;; # is among the steps
    *-bench) echo "$1 240 60 $stem beside its peers, held against its floors" ;;
    *-grade) echo "$1 120 25 make grade of its reference solutions" ;;
  esac
}

# Groups whose limits come to 580 s at most: what decides comes first.
batches() {
  cat <<'EOF'
batch1 tests
batch2 speed-gold
batch3 speed-cheaters softmax-tests
batch4 probe sweep-softmax unmarked-tests attention-counters softmax-counters
batch5 softmax-bench softmax-grade columns
batch6 cpu-grade
batch7 cpu-autograder
batch8 cpu-tests
batch9 fusion-bench epilogue-bench sweep-fusion
batch10 fusion-grade epilogue-grade int4-grade moe-grade
batch11 int4-bench moe-bench sweep-int4
batch12 as-called launch sweep-moe
batch13 transformer-bench transformer-grade
batch14 bench1
batch15 bench2
batch16 bench3
batch17 attention-bench backward-tests
EOF
}

usage() {
  echo "Usage: [DRY=1] [OUT=folder] [PYTHON=python3] tests/on_gpu.sh STEP|BATCH…"
  echo "DRY=1 prints the commands and runs nothing."
  echo
  echo "step             limit"
  steps | while read -r name limit _ about; do
    printf '%-16s %4d s  %s\n' "$name" "$limit" "$about"
  done
  echo "STEM-bench        240 s  a family beside its peers, held against its floors"
  echo "STEM-grade        120 s  make grade of its reference solutions"
  echo
  echo "batch, in the order in which decisions depend on each other"
  batches | while read -r name members; do
    sum=0
    for member in $members; do sum=$((sum + $(field "$member" 2))); done
    printf '%-16s %4d s  %s\n' "$name" "$sum" "$members"
  done
}

field() { (steps && steps_of "$1") | awk -v name="$1" -v number="$2" '$1 == name { print $number }'; }

# Set `run` to the command of a step.
run_of() {
  local pytest=("$PYTHON" -m pytest -q "${pytest_options[@]}")
  local speed=("${pytest[@]}" -vv --tb=short -m gpu tests/autograder/speed)
  local solutions=tests/solutions
  local grade=(make --no-print-directory grade "PYTHON=$PYTHON" SUBMISSION=solutions)
  # Another Python, numpy, torch and Triton than where the course is written; -ra names
  # what is skipped for want of Jupyter or a browser.
  local cpu=(env CUDA_VISIBLE_DEVICES= KERNELWRIGHT_BACKEND=emulator "${pytest[@]}")
  cpu+=(-ra --tb=short -p no:benchmark -n 14 --dist worksteal)
  case "$1" in
    probe) run=("$PYTHON" -c "$probe") ;;
    sweep-softmax) run=("$PYTHON" -m benchmarks._sweep softmax) ;;
    launch) run=("$PYTHON" -m benchmarks.launch --check) ;;
    as-called) run=("$PYTHON" -m benchmarks.as_called --check) ;;
    softmax-tests) run=("${pytest[@]}" $solutions/test_softmax.py) ;;
    softmax-counters) run=("$PYTHON" -m benchmarks._softmax_counters) ;;
    sweep-fusion) run=("$PYTHON" -m benchmarks._sweep fusion) ;;
    sweep-int4) run=("$PYTHON" -m benchmarks._sweep int4) ;;
    sweep-moe) run=("$PYTHON" -m benchmarks._sweep moe) ;;
    columns) run=("$PYTHON" -m benchmarks.reduction --rounds 3 --check) ;;
    attention-bench) run=("$PYTHON" -m benchmarks.flash_attention_triton --check) ;;
    attention-counters)
      run=("$PYTHON" -m benchmarks._flash_attention_triton_counters)
      ;;
    unmarked-tests)
      run=(
        "${pytest[@]}" -m "not gpu" $solutions/test_vector_add.py
        $solutions/test_flash_attention_triton.py
      )
      ;;
    tests) run=(bash -c "$in_company" in_company "${pytest[@]}") ;;
    speed-gold) run=("${speed[@]}" -k earns_gold) ;;
    speed-cheaters) run=("${speed[@]}" -k "not earns_gold") ;;
    backward-tests)
      run=("${pytest[@]}" -p no:benchmark -n 12 --dist worksteal -m gpu)
      run+=($solutions/test_flash_attention_hopper_backward.py)
      ;;
    bench?)
      read -ra members <<<"${judged[${1#bench} - 1]}"
      run=("$PYTHON" -m benchmarks --check "${members[@]}")
      ;;
    grade) run=("${grade[@]}" "OUT=$room/grade") ;;
    cpu-grade)
      run=(env KERNELWRIGHT_BACKEND=emulator "${grade[@]}" "OUT=$room/cpu-grade")
      ;;
    cpu-autograder) run=("${cpu[@]}" tests/autograder) ;;
    cpu-tests) run=("${cpu[@]}" --ignore=tests/autograder tests) ;;
    *-bench) run=("$PYTHON" -m "benchmarks.${1%-bench}" --check) ;;
    *-grade) run=("${grade[@]}" "ONLY=${1%-grade}" "OUT=$room/$1") ;;
  esac
}

# All benchmarks of a GPU that hold what they measure against a floor, in three shares
# that take about as long.
judged=(
  "flash_attention_triton transformer as_called launch"
  "fusion epilogue moe int4 flash_attention parallel ring_allreduce"
  "softmax reduction layernorm matmul tensor_cores transpose vector_add profiling"
)

probe='
import importlib, platform, shutil, subprocess
print("python", platform.python_version())
for name in ("torch", "triton", "cupy", "numpy", "cuda.core", "pytest",
             "pytest_timeout", "mpi4py"):
    try:
        print(name, getattr(importlib.import_module(name), "__version__", "is there"))
    except Exception as error:
        print(name, "ABSENT:", type(error).__name__, error)
for name in ("nvcc", "ncu", "make", "g++", "bwrap", "compute-sanitizer"):
    print(name, shutil.which(name) or "ABSENT")
import torch
print("CUDA", torch.version.cuda, torch.cuda.get_device_properties(0))
subprocess.run(["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.max.sm,"
                "power.limit,compute_mode", "--format=csv"])
'

# Most of a test's time is compiling, so twelve processes share them. One that measures
# time may fail in company: only what fails alone as well is a failure. A cache of its
# own, since what was measured in company was kept.
in_company='
run=("$@" --tb=short -m gpu --ignore=tests/autograder/speed tests)
timeout --signal=INT 400 "${run[@]}" -p no:benchmark -n 12 --dist worksteal
code=$?
((code == 1)) || exit $code
echo "what failed, alone once more"
KERNELWRIGHT_CACHE="$(mktemp -d)" "${run[@]}" --last-failed
'

# Each step's test may take so long; where that plugin is absent the step's limit must do.
find_pytest_options() {
  pytest_options=(--timeout 140)
  [[ -n "$dry" ]] && return
  "$PYTHON" -c 'import pytest_timeout' >/dev/null 2>&1 || pytest_options=(
    -o "addopts=-ra --import-mode=importlib" -W ignore::pytest.PytestConfigWarning
  )
}

do_step() { # name
  local name="$1" limit shown began=$SECONDS status=0 run=()
  limit="$(field "$name" 2)" shown="$(field "$name" 3)"
  run_of "$name"
  # As from a keyboard, so that pytest still says what failed; then in earnest.
  local bounded=(timeout --signal=INT --kill-after=10 "$limit" "${run[@]}")
  if [[ -n "$dry" ]]; then
    printf '%s:' "$name"
    if [[ "$name" == probe ]]; then
      printf ' timeout --signal=INT --kill-after=10 %s %s -c …\n' "$limit" "$PYTHON"
    else
      printf ' %q' "${bounded[@]}"
      echo
    fi
    return
  fi
  echo "== $name, at most $limit s"
  logs+=("$name.log")
  "${bounded[@]}" >"$out/$name.log" 2>&1 </dev/null || status=$?
  tail -n "$shown" "$out/$name.log"
  note "$name" "$status" $((SECONDS - began))
  ((status == 0)) || failed=$((failed + 1))
  pack
}

note() { # name, exit code, seconds
  local words="$2"
  [[ "$2" == 124 || "$2" == 137 ]] && words="$2 (its limit)"
  summary+="$(printf '%-17s %-16s %5s s' "$1" "$words" "$3")"$'\n'
}

# After each step, so that a run that is cut short leaves what it has.
pack() {
  local stored
  printf 'step              exit code        seconds\n%s' "$summary" >"$out/summary.txt"
  mapfile -t stored < <(find benchmarks/results -name '*.json' -newer "$room/began")
  tar -czf "$out/gpu.tar.gz" --exclude=began \
    "${stored[@]}" -C "$room" . -C "$(cd "$out" && pwd)" "${logs[@]}" summary.txt
}

chosen=()
for word in "$@"; do
  members="$(batches | awk -v name="$word" '$1 == name { $1 = ""; print }')"
  for name in ${members:-$word}; do
    if [[ -z "$(field "$name" 2)" ]]; then
      echo "no step or batch $name" >&2
      usage >&2
      exit 2
    fi
    chosen+=("$name")
  done
done
if ((${#chosen[@]} == 0)); then
  usage
  exit 2
fi

failed=0 summary="" room=results logs=()
find_pytest_options
if [[ -z "$dry" ]]; then
  mkdir -p "$out"
  room="$(mktemp -d)"
  touch "$room/began"
fi
for name in "${chosen[@]}"; do do_step "$name"; done
[[ -n "$dry" ]] && exit 0
pack
(cd "$out" && rm -f -- "${logs[@]}") # they are in gpu.tar.gz; few files come back
rm -rf "$room"
cat "$out/summary.txt"
echo "logs and results: $out/gpu.tar.gz, $(stat -c %s "$out/gpu.tar.gz") bytes"
exit "$failed"
