#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
#
# On a machine with a GPU: build the core with CUDA for that GPU, compare CPU and CUDA hash by hash,
# and time the bulk lanes on it. Under 8 minutes. Skips, saying why, where there is no GPU or nvcc.
#   bash benchmarks/device_check/check.sh [OUTPUT_FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-build/device_check}
mkdir -p "$out"

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L | grep -q GPU; then
  echo "skipped: no GPU on this machine"
  exit 0
fi
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ ! -x "$nvcc" ]; then
  echo "skipped: no nvcc on this machine"
  exit 0
fi
nvidia-smi -L | tee "$out/gpu.txt"

cmake -S . -B build/device -G Ninja -DCMAKE_BUILD_TYPE=Release -DTRNSIM_TORCH=OFF -DTRNSIM_CUDA=on \
  -DCMAKE_CUDA_COMPILER="$nvcc" -DTRNSIM_CUDA_ARCHITECTURES=native \
  -DTRNSIM_OUTPUT="$PWD/build/device/out" >"$out/configure.log"
cmake --build build/device --target test_simulate test_fold >"$out/build.log"

export OMP_WAIT_POLICY=passive
(cd build/device/tests/cpp && ./test_fold && ./test_simulate) | tee "$out/tests.txt" | tail -3
grep -q 'OK.*Golden.AGpuGivesThemToo' "$out/tests.txt"

library=build/device/out/lib
c++ -std=gnu++20 -O3 -DNDEBUG -Icsrc benchmarks/timeline/timeline.cpp -L"$library" -ltrnsim_core \
  -Wl,-rpath,"$PWD/$library" -o build/device/timeline
for backend in cpp omp cuda; do
  build/device/timeline 4096 20000 128 "$backend" | tee "$out/timeline_$backend.csv"
done
hashes=$(tail -qn1 "$out"/timeline_*.csv | cut -d, -f7 | sort -u | wc -l)
if [ "$hashes" -ne 1 ]; then
  echo "the hashes differ" >&2
  exit 1
fi
echo "CPU and CUDA agree"
