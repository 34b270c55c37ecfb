#!/usr/bin/env bash
# kill_test.sh with everything on disk: a killed run's extent is cleaned by the next start, and resuming is exact.
# KILLS=100 in the environment is the full length.
export KILLS=${KILLS:-10} KEYS="disk.path=disk plan.policy=all-on-disk"
exec "$(dirname "$0")/kill_test.sh"
