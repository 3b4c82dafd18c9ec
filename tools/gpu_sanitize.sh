#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
#
# The tests marked gpu under one tool of compute-sanitizer, in groups of $GROUP (default four), eight groups at a time:
#
#     SITE=<where the package is installed> tools/gpu_sanitize.sh memcheck|racecheck TESTS...
#
# The front end of compute-sanitizer 2025.3 itself dies of a segmentation fault in about half of the runs, the longer ones
# above all, and takes the tests with it. So a group is tried up to six times; GROUP=1 finishes what stays undone. Fails
# if the tool reports an error, a test fails, or a group never comes to its end.

set -uo pipefail
tool=$1
shift
export tool PYTHON=${PYTHON:-python3}
export PYTHONPATH=$SITE XLA_PYTHON_CLIENT_PREALLOCATE=false XLA_PYTHON_CLIENT_ALLOCATOR=platform
export XLA_FLAGS=--xla_gpu_enable_command_buffer=

group() {
  local log status
  log=$(mktemp)
  for _ in 1 2 3 4 5 6; do
    compute-sanitizer --tool "$tool" --kernel-name kns=dynemb --report-api-errors no --error-exitcode 9 \
      timeout --kill-after=5 60 "$PYTHON" -P -m pytest -q -p no:benchmark -p no:cacheprovider "$@" >"$log" 2>&1
    status=$?
    ((status == 139)) || break
  done
  if ((status == 0)); then
    echo "group ok: $(grep -oE '[0-9]+ passed' "$log")"
  else
    echo "GROUP FAILED ($status): $*"
    tail -n 15 "$log"
  fi
  rm -f "$log"
  return "$status"
}
export -f group

"$PYTHON" -P -m pytest --collect-only -q -m "gpu and not slow" -p no:benchmark "$@" | grep '::' |
  xargs -P 8 -n "${GROUP:-4}" bash -c 'group "$@"' _ | tee -a /dev/stderr |
  awk '/^group ok/ {passed += $3} /^GROUP FAILED/ {failed += 1}
       END {printf "%d passed, %d failed groups\n", passed, failed; exit failed > 0}'
