#!/usr/bin/env bash
# Trains Qwen2.5-0.5B's shape from random weights, first with lazytrain, then with transformers + torch (bench/peers), in
# one run on one machine, and prints tokens/s, peak memory and their ratios. Needs 16 GB of free memory for the peer.
#   PYTHON=venv/bin/python [STATE=fp32] bench/train_throughput.sh [STEPS=3] [POLICY=resident] [COMPUTE=bf16]
# STATE: lazytrain's optimizer.state, such as 8bit.
# PYTHON: an interpreter with torch and transformers (tools/golden/requirements.txt). Without it only lazytrain runs.
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-3}; policy=${2:-resident}; compute=${3:-bf16}
lazytrain=${LAZYTRAIN:-build/release/lazytrain}
threads=$(nproc)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

# The shape is what matters: the ids of another vocabulary's special tokens are left out.
sed '/_token_id"/d' configs/qwen2.5-0.5b.json > "$work/config.json"
"$lazytrain" new-model --config "$work/config.json" --tokenizer demo/tokenizer --seed 1 "$work/model" >&2
# Rows of exactly 512 tokens: longer text, cut on the right.
bash demo/make_problems.sh 1 2000 train | tr -d '\n"{}' | fold -w 4000 | awk 'NR <= 16' |
  sed 's/\\//g; s/.*/{"prompt":"","response":"&"}/' > "$work/data.jsonl"
cat > "$work/run.yaml" <<YAML
model: $work/model
output: $work/run
data: {train: $work/data.jsonl, template: none, pack: false, shuffle: false}
seq: 512
batch: 4
steps: $steps
compute: $compute
device: {threads: $threads}
plan: {policy: $policy}
optimizer: {state: "${STATE:-fp32}", lr: 1.0e-5, schedule: constant, warmup: 0, clip: 1.0}
YAML
/usr/bin/time -v "$lazytrain" train "$work/run.yaml" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
sed -n '/where the time went/,/^memory:/p' "$work/log"
ours_bytes=$(( $(sed -n 's/.*Maximum resident set size (kbytes): //p' "$work/log") * 1024 ))
# The median over the steps after the first, as the peer does it.
ours_rate=$(sed 1d "$work/run/metrics.jsonl" | sed 's/.*"tok_per_s":\([0-9.e+]*\).*/\1/' | sort -g | awk '{v[NR]=$1} END {print (v[int((NR+1)/2)]+v[int(NR/2)+1])/2}')
awk -v r="$ours_rate" -v b="$ours_bytes" 'BEGIN {printf "lazytrain  %8.1f tok/s  %6.2f GiB\n", r, b/2^30}'
rm -rf "$work/run"

if [[ -z ${PYTHON:-} ]]; then
  echo "peer: skipped, PYTHON is not set to an interpreter with torch and transformers"
  exit 0
fi
for mode in ${PEER_MODES:-autocast}; do
  result=$("$PYTHON" bench/peers/hf_train.py --config configs/qwen2.5-0.5b.json --batch 4 --seq 512 --steps "$steps" --threads "$threads" --mode "$mode" | tail -n 1)
  rate=$(sed 's/.*"tok_per_s": \([0-9.]*\).*/\1/' <<< "$result")
  bytes=$(sed 's/.*"peak_rss_bytes": \([0-9]*\).*/\1/' <<< "$result")
  awk -v m="$mode" -v r="$rate" -v b="$bytes" -v R="$ours_rate" -v B="$ours_bytes" \
    'BEGIN {printf "torch %-13s %6.1f tok/s  %6.2f GiB   lazytrain: %.2fx the speed, %.0f%% of the memory\n", m, r, b/2^30, R/r, 100*B/b}'
done
