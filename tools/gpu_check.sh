#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
#
# The checks that need a CUDA device, in under ten minutes:
#
#     tools/gpu_check.sh [build] [test] [sanitize] [bench] [suites] [mesh] [checkpoint]      (none named: the first four)
#
#   build     pip install of this checkout into a folder of its own; nothing is downloaded
#   test      the tests marked gpu
#   sanitize  compute-sanitizer, memcheck and racecheck, on a few of them
#   bench     benchmarks/bench_suite.py: every cell beside target, peer and floor
#   suites    its other suites
#   mesh      benchmarks/bench_mesh.py, for a machine with several GPUs
#   checkpoint  benchmarks/bench_checkpoint.py: 40 GB, which must also fit the host's memory and disk
#
# Needs: a Python with jax[cuda], flax, optax, pytest, hypothesis, nanobind and scikit-build-core; cmake, ninja, nvcc.
# A log for each stage, bench.json and results.json go to $OUT (default ./gpu_results). A stage that fails does not
# stop the next one, except that nothing runs without a build.
#
# Environment: PYTHON, OUT, CUDAARCHS (default 90), TEST_ARGS, SANITIZE_TESTS, BENCH_ARGS, and a limit in seconds for
# each stage: BUILD_LIMIT, TEST_LIMIT, SANITIZE_LIMIT (each tool), BENCH_LIMIT, ...

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

PYTHON=${PYTHON:-python3}
OUT=${OUT:-gpu_results}
SITE=$PWD/build/gpu-site
SANITIZE_TESTS=${SANITIZE_TESTS:-tests/ops/test_lookup.py tests/ops/test_insert.py tests/ops/test_eviction.py tests/ops/test_erase.py tests/optim/test_fused.py}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
export PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1 CUDAARCHS=${CUDAARCHS:-90}

rows=()   # one line of the table for each stage
json=()   # one JSON object for each stage
failed=0

# stage NAME LIMIT COMMAND...: runs it with its own log and time limit; the log's last telling line is the remark.
stage() {
  local name=$1 limit=$2 start=$SECONDS status=0 result=ok remark
  shift 2
  echo "==== $name (at most $limit s): $*"
  timeout --kill-after=10 "$limit" "$@" >"$OUT/$name.log" 2>&1 || status=$?
  case $status in
    0) ;;
    124 | 137) result=timeout ;;
    *) result=failed ;;
  esac
  [[ $result == ok ]] || { failed=1; tail -n 40 "$OUT/$name.log"; }
  remark=$(grep -E '(passed|failed|error|not supported|ERROR SUMMARY|RACECHECK SUMMARY|Successfully installed)' "$OUT/$name.log" |
    tail -n 1 | tr -cd '[:alnum:] .,:_/()-' | cut -c1-70)
  rows+=("$(printf '%-10s %-8s %4d s  %s' "$name" "$result" $((SECONDS - start)) "$remark")")
  json+=("{\"stage\": \"$name\", \"result\": \"$result\", \"seconds\": $((SECONDS - start)), \"remark\": \"$remark\"}")
  [[ $result == ok ]]
}

build() {
  rm -rf "$SITE"
  stage build "${BUILD_LIMIT:-120}" "$PYTHON" -m pip install --no-build-isolation --no-deps --no-index --target "$SITE" \
    --config-settings=cmake.define.DYNEMB_CUDA=ON --config-settings=build-dir='build/gpu-{wheel_tag}' .
}

# -P and PYTHONPATH: what runs is what was built, not the checkout.
run_tests() {
  # shellcheck disable=SC2086
  stage test "${TEST_LIMIT:-200}" env PYTHONPATH="$SITE" XLA_PYTHON_CLIENT_PREALLOCATE=false \
    "$PYTHON" -P -m pytest -m gpu -p no:benchmark --durations=5 ${TEST_ARGS:-}
}

# Every array is a cudaMalloc of its own, so that memcheck sees each end. Calls that CUDA's own libraries make and
# handle are not our errors. Tests go in small groups, side by side (why: gpu_sanitize.sh).
sanitize() {
  local tool
  export SITE
  for tool in memcheck racecheck; do
    # shellcheck disable=SC2086
    stage "$tool" "${SANITIZE_LIMIT:-150}" tools/gpu_sanitize.sh "$tool" $SANITIZE_TESTS
  done
}

# measure NAME LIMIT COMMAND...: a stage whose log is what one wants to read.
measure() {
  stage "$1" "$2" env PYTHONPATH="$SITE" "${@:3}"
  cat "$OUT/$1.log"
}

bench() {
  # shellcheck disable=SC2086
  measure bench "${BENCH_LIMIT:-150}" "$PYTHON" benchmarks/bench_suite.py --nnx --kernels \
    --json "$OUT/bench.json" --plot "$OUT/bench.png" ${BENCH_ARGS:-}
}

suites() {
  measure suites "${SUITES_LIMIT:-300}" "$PYTHON" benchmarks/bench_suite.py --json "$OUT/suites.json" \
    --plot "$OUT/suites.png" --suite "${SUITES:-uniform,bf16,full,narrow,skew,hash}"
}

mesh() {
  # shellcheck disable=SC2086
  measure mesh "${MESH_LIMIT:-300}" "$PYTHON" benchmarks/bench_mesh.py --json "$OUT/mesh.json" ${MESH_ARGS:-}
}

checkpoint() {
  measure checkpoint "${CHECKPOINT_LIMIT:-350}" "$PYTHON" benchmarks/bench_checkpoint.py --json "$OUT/checkpoint.json" \
    --gigabytes "${GIGABYTES:-40}" --directory "$(mktemp -d)" --parts "${CHECKPOINT_PARTS:-checkpoint,plain}"
}

stages=("$@")
((${#stages[@]})) || stages=(build test sanitize bench)
for name in "${stages[@]}"; do
  case $name in
    build) build || break ;;
    test) run_tests ;;
    sanitize) sanitize ;;
    bench | suites | mesh | checkpoint) "$name" ;;
    *)
      echo "unknown stage '$name': name some of build test sanitize bench suites mesh checkpoint" >&2
      exit 2
      ;;
  esac
done

printf '{"stages": [%s]}\n' "$(IFS=,; echo "${json[*]}")" >"$OUT/results.json"
printf '\n%s\n' "stage      result   time   remark"
printf '%s\n' "${rows[@]}"
exit "$failed"
