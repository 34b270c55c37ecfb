#!/usr/bin/env bash
# A disk tier on a system that refuses things: each is said in a line, nothing is lost, nothing is left behind.
source "$(dirname "$0")/lib.sh"
cd "$work"

"$root/demo/make_problems.sh" 1 40 train >train.jsonl
write_config run.yaml
new_model model
mkdir disk
keys=(plan.policy=all-on-disk disk.path=disk data.pack=false)
check "a run with everything on disk" "$LAZYTRAIN" train run.yaml output=whole "${keys[@]}"

# train_with NAME PATTERN SETUP...: the run is the same under a limit, and a line of its log says what is refused.
expect "memory that may not be locked: without registered buffers" 0 'regist|lock' \
  bash -c "ulimit -l 64 && exec '$LAZYTRAIN' train run.yaml output=unlocked ${keys[*]}"
check "the same run" same_run whole unlocked

expect "a folder that is a file" 2 'disk\.path' "$LAZYTRAIN" train run.yaml output=none disk.path=train.jsonl
expect "less room allowed than the plan needs" 3 'disk: .*short' "$LAZYTRAIN" train run.yaml output=none \
  "${keys[@]}" disk.memory=1MB
check "a refused run leaves no folder" test ! -e none

# File systems of one's own need root.
mounted=()
unmount() { for m in "${mounted[@]}"; do umount "$m" 2>/dev/null || true; done; }
trap 'unmount; clean_up' EXIT
mkdir little readonly
if mount -t tmpfs -o size=1m tmpfs little 2>/dev/null; then
  mounted+=(little)
  expect "a file system without the room" 3 'disk' "$LAZYTRAIN" train run.yaml output=none plan.policy=all-on-disk disk.path=little
  check "nothing is left there" test -z "$(ls little)"
  dd if=/dev/zero of=little/filler bs=64k 2>/dev/null || true
  expect "a full disk" 3 "^error: disk.path: the disk of little is full" "$LAZYTRAIN" train run.yaml output=full \
    plan.policy=all-on-disk disk.path=little --dry-run
  umount little && mount -t tmpfs -o size=64m tmpfs little
  check "tmpfs with room: it runs" "$LAZYTRAIN" train run.yaml output=tmpfs plan.policy=all-on-disk disk.path=little data.pack=false
  check "to the same bits" same_run whole tmpfs
  expect "and its bytes are counted as memory" 3 'disk\.path, which lies in memory' "$LAZYTRAIN" train run.yaml output=none \
    plan.policy=all-on-disk disk.path=little data.pack=false host.memory=68MB
  if mount --bind readonly readonly && mount -o remount,ro,bind readonly; then
    mounted+=(readonly)
    expect "a read-only folder" 2 'disk\.path|ead-only' "$LAZYTRAIN" train run.yaml output=none plan.policy=all-on-disk disk.path=readonly
  fi
else
  echo "skipped: no file system can be mounted here (not root)"
fi

# Stopped and continued, interrupted and resumed.
"$LAZYTRAIN" train run.yaml output=stopped "${keys[@]}" 2>stopped.log &
pid=$!
sleep 0.4
kill -STOP $pid 2>/dev/null || true
sleep 0.5
kill -CONT $pid 2>/dev/null || true
check "stopped and continued: it ends" wait $pid
check "as if nothing had been" same_run whole stopped

# Two runs on one disk folder have a file each.
"$LAZYTRAIN" train run.yaml output=first "${keys[@]}" 2>first.log &
pid=$!
check "two at once" "$LAZYTRAIN" train run.yaml output=second "${keys[@]}"
check "both end" wait $pid
check "the first is the same run" same_run whole first
check "and the second" same_run whole second
check "no file is left on the disk" test -z "$(ls disk)"

finish
