#!/usr/bin/env bash
# A short soak: memory and file descriptors stay as they are while a run goes on (bench/soak.sh, which says more).
source "$(dirname "$0")/lib.sh"
cd "$work"

# What it calls flat, on samples made by hand: step, kB, descriptors.
samples() { awk -v kb="$1" -v fd="$2" 'BEGIN { for (i = 1; i <= 100; i++) printf "%d\t%d\t%d\n", 10 * i, 50000 + i * kb, 20 + int(i * fd) }'; }
samples 0 0 >flat.tsv
samples 8 0 >growing.tsv
samples -8 0 >shrinking.tsv
samples 0 0.02 >leaking.tsv
head -n 12 flat.tsv >short.tsv
soak=$root/bench/soak.sh
expect "flat samples pass" 0 'file descriptors .* 0$' "$soak" --judge flat.tsv
expect "growing memory fails" 1 'resident memory .* 1\.[0-9]+%$' "$soak" --judge growing.tsv
expect "shrinking memory fails" 1 'resident memory .* -1\.[0-9]+%$' "$soak" --judge shrinking.tsv
expect "a leak of descriptors fails" 1 'file descriptors .* [1-9]$' "$soak" --judge leaking.tsv
expect "too few samples fail" 1 'too few samples' "$soak" --judge short.tsv

check "memory and descriptors of a run are flat" "$soak" "${SOAK_STEPS:-800}"
cat "$logs/check"

finish
