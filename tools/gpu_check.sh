#!/bin/bash
# Checks and measures Sluice on this machine's GPU, in stages of at most 8 minutes. Stages that ended are not run again
# (their results are kept in the folder), so an interrupted check goes on where it stopped.
#
#   tools/gpu_check.sh [-o FOLDER] [-b DIST] [-f] [-j JOBS] [-t SECONDS] [STAGE...]
#
#   -o FOLDER   results and logs (default build/gpu-check)
#   -b DIST     a folder with bin/ and lib/ (tools/bundle cuda), or dist-cuda.tar.xz; default build/cuda
#   -f          run the named stages again
#   -t SECONDS  most that a stage may take (default 480)
#   -j JOBS     fixtures of the golden stage at a time (default 8): a step is mostly the start of a process
#
# Stages, in this order when none is named:
#   machine     what there is: driver, GPU, libraries
#   ceilings    bytes and operations a second at best
#   oracle      every operation against its body on the CPU, a family at a time
#   golden      every fixture in float32: all modes deterministic (bits equal), then with the fast kernels; those of
#               more_models.tar.xz without bfloat16
#   tiny        the bundled model's records, which are of float32
#   serving     a server on the GPU answers over HTTP, twice the same; tests/serving where pytest is installed
#   trees       trees of drafts change no bits of answers, with keys of every kind
#   tasks       the questions of the bundled model's card in bfloat16
#   memory      what a mixed load of four minutes leaves of the GPU's memory
#   bench       decode and prefill of real shapes with dummy weights
#   fault       what a server does when its GPU fails for good, where the library for it was built
#   startup     program start to first token, and the first token of a prompt, with weights of Qwen3-8B's shape
#   memcheck    small shapes of every family of the oracle under compute-sanitizer, where that is installed: memcheck
#   racecheck   the same: races in shared memory
#
# Writes FOLDER/result.json and docs/benchmarks/h200.json at the end. Exit status: 0 when every stage that was run passed.
set -u
cd "$(dirname "$0")/.."
out=build/gpu-check
dist=build/cuda
force=0
jobs=8
limit=480
while getopts "o:b:fj:t:" flag; do
  case $flag in
    o) out=$OPTARG ;;
    b) dist=$OPTARG ;;
    f) force=1 ;;
    j) jobs=$OPTARG ;;
    t) limit=$OPTARG ;;
    *) sed -n '2,12p' "$0" >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
all="machine ceilings oracle golden tiny serving trees tasks memory fault bench startup memcheck racecheck"
families="rows gemm fp8 int8 int attention mla experts expert_fragments index recurrent fused sampling deterministic ranks"
stages=${*:-$all}
mkdir -p "$out" || exit 2
case $dist in
  *.tar.xz)
    unpacked=${TMPDIR:-/tmp}/sluice-gpu-check
    rm -rf "$unpacked" && mkdir -p "$unpacked" && tar -xJf "$dist" -C "$unpacked" || exit 2
    dist=$unpacked/dist-cuda ;;
esac
bin=$dist/bin
[ -x "$bin/sluice" ] || { echo "error: there is no $bin/sluice; build the preset cuda or give -b" >&2; exit 2; }

# cuBLASLt comes with the CUDA toolkit, or with Python packages that bring their own.
for folder in /usr/local/cuda/lib64 $(python3 - <<'PY' 2>/dev/null
import glob, site, sys
roots = site.getsitepackages() + [site.getusersitepackages()] + sys.path
for root in dict.fromkeys(roots):
    for path in glob.glob(f"{root}/nvidia/*/lib"):
        if glob.glob(path + "/libcublasLt.so.13"):
            print(path)
PY
); do
  [ -e "$folder/libcublasLt.so.13" ] && export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" && break
done

# step NAME COMMAND...: runs it within what is left of the stage, notes seconds and status, goes on after a failure.
# What it printed is in $text afterwards.
step() {
  local name=$1 begin left status
  text=$out/step.${BASHPID}.txt
  shift
  begin=$(date +%s.%N)
  left=$((deadline - $(date +%s)))
  if [ "$left" -le 1 ]; then
    echo "$name: not run, the stage's time is over" | tee -a "$log"
    status=124
  else
    timeout "$left" "$@" >"$text" 2>&1
    status=$?
    { echo "-- $name"; cat "$text"; } >>"$log"
    [ $status = 0 ] || { echo "FAILED ($status): $name"; tail -25 "$text"; }
  fi
  printf '{"step": "%s", "status": %d, "seconds": %.1f}\n' "$name" $status \
    "$(date +%s.%N | awk -v begin="$begin" '{print $1 - begin}')" >>"$out/$stage.steps"
  return $status
}

verify() {   # MODEL-FOLDER GOLDEN more...
  local model=$1 golden=$2
  shift 2
  "$bin/sluice" verify --model "$model" --golden "$golden" --device cuda --log-level warning "$@"
}
export -f verify
export bin

run_machine() {
  step version "$bin/sluice" version
  step gpu nvidia-smi
  step libraries bash -c "ldd $bin/sluice | grep 'not found' && exit 1; exit 0"
  step cublaslt bash -c 'ls -l ${LD_LIBRARY_PATH%%:*}/libcublasLt.so.13'
}
run_ceilings() {
  step ceilings "$bin/gpu_ceilings" && cp "$text" "$out/ceilings.json"
  cat "$text"
}
run_oracle() {
  local family
  step doctor "$bin/sluice" doctor bench/configs/qwen3-8b --device cuda
  step "doctor glm-5" "$bin/sluice" doctor bench/configs/glm-5 --device cuda
  for family in $families; do
    step "oracle $family" "$bin/ops_oracle" $family
    tail -25 "$text"
  done
}
# check_fixture FOLDER with-bfloat16|without more...
check_fixture() {
  local folder=$1 bfloat16=$2 name more
  shift 2
  more=$*
  name=$(basename "$folder")
    step "golden $name deterministic" bash -c "verify $folder $folder/golden.json --dtype float32 --deterministic $more \
      --modes whole,chunk:1,chunk:7,chunk:64,cached:20,mixed,decode"
  step "golden $name whole" bash -c "verify $folder $folder/golden.json --dtype float32 $more --modes whole"
  step "golden $name without graphs" bash -c "verify $folder $folder/golden.json --dtype float32 $more --modes decode \
    --disable-cuda-graph --disable-overlap-schedule"
  step "golden $name mixed" bash -c "verify $folder $folder/golden.json --dtype float32 $more --modes mixed"
  [ "$bfloat16" = without ] && return
  # One mode at a time: the bits of whole passes and of steps are equal in deterministic mode alone.
  step "golden $name bfloat16" bash -c "verify $folder $folder/golden.json --dtype bfloat16 $more --modes whole"
  step "golden $name bfloat16 steps" bash -c "verify $folder $folder/golden.json --dtype bfloat16 $more --modes decode"
}
run_golden() {
  local folder name more unpacked=${TMPDIR:-/tmp}/sluice-gpu-fixtures
  at_once() {
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    check_fixture "$@" &
  }
  for folder in tests/golden/models/*/; do
    [ -f "$folder/golden.json" ] || continue
    more=""
    # Its rotary base depends on the length of the pass (tests/golden/README.md).
    [ "$(basename "$folder")" != llama-dynamic ] || more="--lengths 1,7,33"
    at_once "$folder" with-bfloat16 $more
  done
  rm -rf "$unpacked" && mkdir -p "$unpacked" && tar -xJf tests/golden/more_models.tar.xz -C "$unpacked" ||
    { step "golden unpacking" false; return; }
  while read -r name more; do at_once "$unpacked/$name" without $more; done < <(grep '^[a-z]' tests/golden/more_models.txt)
  wait
  step "golden llama-dynamic passes" bash -c "verify tests/golden/models/llama-dynamic \
    tests/golden/models/llama-dynamic/golden.json --dtype float32 --modes passes --context-length 256 \
    --allow-longer --rope-by-length"
}
run_tiny() {
  local model=models/sluice-tiny golden=tests/golden/sluice-tiny.json
  step "sluice-tiny float32 deterministic" bash -c "verify $model $golden --dtype float32 --deterministic \
    --modes whole,chunk:64,decode"
  step "sluice-tiny float32" bash -c "verify $model $golden --dtype float32 --modes whole"
}
run_serving() {
  step serving python3 tools/gpu_serving.py "$bin/sluice" answers bits dense
  tail -12 "$text"
  python3 -c 'import pytest' || { echo "pytest is not installed"; return; }
  export SLUICE=$PWD/$bin/sluice SLUICE_TEST_DEVICE=cuda
  case $bin in /*) SLUICE=$bin/sluice ;; esac
  local name
  # No step of the bundled model is slow enough on a GPU for the watchdog.
  for name in golden bad_input disconnects chat flags openai; do
    [ $name != openai ] || python3 -c 'import openai' || continue
    step "serving $name" python3 -m pytest -q -x -p no:cacheprovider -k "not watchdog" \
      "tests/serving/test_$name.py"
    tail -3 "$text"
  done
  unset SLUICE SLUICE_TEST_DEVICE
}
run_trees() {
  step trees python3 tools/gpu_serving.py "$bin/sluice" trees
  grep '^trees' "$text"
}
run_tasks() {
  step tasks python3 tools/tiny_tasks.py "$bin/sluice" --card bf16 --per-kind 48 -- --device cuda --dtype bfloat16
  tail -26 "$text"
}
run_memory() {
  step memory python3 tools/gpu_memory.py "$bin/sluice"
  tail -5 "$text"
}
run_bench() {
  local shape batch input
  : >"$out/bench.jsonl"
  while read -r shape batch input; do
    if step "bench $shape batch $batch input $input" "$bin/sluice" bench latency --model "bench/configs/$shape" \
      --load-format dummy --device cuda --dtype bfloat16 --batch-size "$batch" --input-len "$input" --output-len 16 \
      --chunked-prefill-size 8192 --json; then
      grep '^{' "$text" | tee -a "$out/bench.jsonl"
    fi
  done <<'LIST'
llama-3.2-1b 1 2048
llama-3.2-1b 64 512
qwen3-8b 1 2048
qwen3-8b 1 8192
qwen3-8b 64 2048
qwen3-30b-a3b 1 2048
qwen3-30b-a3b 8 2048
LIST
}
run_fault() {
  local library=$dist/lib/libcuda_fault.so
  [ -f "$library" ] || { echo "there is no $library"; return; }
  step fault python3 tools/gpu_fault.py "$bin/sluice" "$library"
  tail -8 "$text"
}
run_startup() {
  local shape
  step startup python3 bench/gpu_startup.py "$bin/sluice"
  tail -5 "$text"
  for shape in qwen3-8b qwen3-30b-a3b; do
    step "first token $shape" python3 bench/gpu_first_token.py "$bin/sluice" "bench/configs/$shape"
    tail -2 "$text"
  done
}
sanitize() {   # TOOL KIB
  local family program
  program=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
    { echo "compute-sanitizer is not installed"; return; }
  for family in $families; do
    # Kernels of cuBLASLt ("nvjet") synchronise in ways that racecheck does not see.
    step "$1 $family" bash -c "'$program' --tool $1 '$bin/ops_oracle' -s $2 $family >'$out/sanitized.txt' 2>&1; status=\$?
      cat '$out/sanitized.txt'; [ \$status = 0 ] && grep -q 'SUMMARY' '$out/sanitized.txt' || exit 1
      ! grep -E '========= (Error|Warning|Invalid|Uninit|Program hit|Leaked)' '$out/sanitized.txt' | grep -v ' at nvjet_'"
    tail -12 "$text"
  done
}
run_memcheck() { sanitize memcheck 8192; }
run_racecheck() { sanitize racecheck 2048; }

bad=0
for stage in $stages; do
  case " $all " in *" $stage "*) ;; *) echo "error: no stage '$stage'; there are: $all" >&2; exit 2 ;; esac
  if [ $force = 0 ] && [ -f "$out/$stage.done" ]; then
    echo "== $stage: done before ($(cat "$out/$stage.done"))"
    continue
  fi
  echo "== $stage"
  log=$out/$stage.log
  : >"$log"
  : >"$out/$stage.steps"
  begin=$(date +%s)
  deadline=$((begin + limit))
  "run_$stage"
  rm -f "$out"/step.*.txt
  steps=$(grep -c . "$out/$stage.steps")
  failed=$(grep -cv '"status": 0,' "$out/$stage.steps")
  echo "== $stage: $steps steps, $failed failed, $(($(date +%s) - begin)) s" | tee "$out/$stage.summary"
  # A stage that failed runs again next time.
  if [ $failed = 0 ]; then echo "$steps steps" >"$out/$stage.done"; else bad=1; rm -f "$out/$stage.done"; fi
done
python3 tools/gpu_result.py "$out" docs/benchmarks/h200.json || bad=1
exit $bad
