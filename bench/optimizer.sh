#!/usr/bin/env bash
# The optimizer beside those of others, in one run: ours with fp32 and 8-bit moments and the memory's own rate
# (bench/optimizer_bench.cc), then torch, DeepSpeed, bitsandbytes and torchao where PYTHON has them
# (bench/peers/optimizers.py).
#
#   PYTHON=venv/bin/python bench/optimizer.sh [MILLIONS ...]      default: 100 400 millions of parameters
#
# The peers come from PyPI: pip install torch deepspeed bitsandbytes torchao ninja
set -euo pipefail
cd "$(dirname "$0")/.."
millions=("$@")
[[ ${#millions[@]} -gt 0 ]] || millions=(100 400)
cmake --build build/release --target optimizer_bench >/dev/null
filter=$(IFS='|'; printf 'BM_(AdamW|AdamW8Bit.*|Stream)/millions:(%s)/' "${millions[*]}")
build/release/bench/optimizer_bench --benchmark_filter="$filter" --benchmark_format=csv 2>/dev/null |
  awk -F, 'BEGIN { printf "%-24s%9s%9s%10s%10s%11s\n", "ours", "millions", "threads", "ms", "cpu ms", "M param/s" }
    /^"BM_/ {
      split($1, part, /[\/:"]/)  # "BM_NAME/millions:N/threads:T/...
      printf "%-24s%9d%9d%10.1f%10.1f%11.0f\n", part[2], part[4], part[6], $13, $12, part[4] / $13 * 1000
    }'
if [[ -z ${PYTHON:-} ]]; then
  echo "peers: skipped (set PYTHON to a Python that has torch)"
  exit 0
fi
"$PYTHON" bench/peers/optimizers.py --millions "${millions[@]}" --threads 1 2
