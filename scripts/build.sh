#!/usr/bin/env bash
# Configures and builds one preset of CMakePresets.json into build/PRESET. With CI set in the environment, warnings are
# errors.
#   scripts/build.sh [PRESET] [TARGET...]     PRESET: release (default), debug, asan, tsan, fuzz
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
shift || true
for tool in cmake ninja; do
  command -v "$tool" >/dev/null || { echo "build: $tool is missing; run scripts/setup.sh first" >&2; exit 1; }
done

# One compiler takes up to 1.5 GB: on a small machine fewer of them run at once than there are cores.
jobs=$(nproc)
available_kb=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo 2>/dev/null || true)
if [[ -n $available_kb ]]; then
  fitting=$((available_kb / 1500000))
  if [[ $fitting -lt $jobs ]]; then jobs=$((fitting > 0 ? fitting : 1)); fi
fi

# Paths relative to the project: another clone of it finds the same objects in ccache.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

werror=OFF
architectures=()  # of the plugin for CUDA: one is enough to see that it compiles
if [[ -n ${CI:-} ]]; then
  werror=ON
  architectures=(-DLAZYTRAIN_CUDA_ARCHITECTURES=90-real)
fi
cmake --preset "$preset" -DLAZYTRAIN_WERROR="$werror" "${architectures[@]}"
targets=()
if [[ $# -gt 0 ]]; then targets=(--target "$@"); fi
cmake --build --preset "$preset" --parallel "$jobs" "${targets[@]}"
