#!/usr/bin/env bash
# Run NVIDIA's tools on this folder's programs and keep what they print: record.sh OUT
# Needs a GPU, nvcc, ncu and compute-sanitizer; nsys where it is installed.
set -u
here="$(cd "$(dirname "$0")" && pwd)"
out="${1:?where to}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
cd "$work" || exit 1
cp "$here"/*.cu .
for name in two_copies past_the_end no_barrier; do
    nvcc -arch=native -lineinfo -o "$name" "$name.cu" || exit 1
done
{
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    nvcc --version | tail -2
    ncu --version | tail -1
    compute-sanitizer --version
    command -v nsys && nsys --version
} >"$out/versions.txt" 2>&1
ncu --clock-control none --section SpeedOfLight --section MemoryWorkloadAnalysis \
    --section Occupancy --print-summary none ./two_copies >"$out/ncu.txt" 2>&1
ncu --clock-control none --csv --page raw --print-units base --metrics \
"gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,\
l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum,\
l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum,\
dram__throughput.avg.pct_of_peak_sustained_elapsed,\
sm__throughput.avg.pct_of_peak_sustained_elapsed,\
sm__warps_active.avg.pct_of_peak_sustained_active" \
    ./two_copies >"$out/ncu.csv" 2>&1
compute-sanitizer --print-limit 2 ./past_the_end >"$out/memcheck.txt" 2>&1
compute-sanitizer --tool racecheck --racecheck-report all --print-limit 2 \
    ./no_barrier >"$out/racecheck.txt" 2>&1
./past_the_end >"$out/plain.txt" 2>&1
if command -v nsys >/dev/null; then
    nsys profile -o run --force-overwrite true ./two_copies >"$out/nsys.txt" 2>&1
    nsys stats --report cuda_gpu_kern_sum,cuda_api_sum run.nsys-rep \
        >>"$out/nsys.txt" 2>&1
fi
# Process numbers and temporary folders say nothing to a reader.
sed -i -e '/^==PROF==/d' -e '/^\[[0-9]*\] /d' -e 's/ *$//' "$out"/*.txt
tail -n +1 "$out"/*.txt
