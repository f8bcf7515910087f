#!/bin/sh
# evaluate.sh FOLDER CEPHFIT [WORKLOAD ...]: measure the sweep `evaluation` and run real workloads, by default all, on
# its configurations, on a lab of its own; then assess the predictions. Run again after an interrupt, it continues: the
# lab is removed only at the end.
set -eu
folder=$1 cephfit=$2
shift 2
programs=$(dirname "$0")/workloads/programs
sweep=${EVALUATION_SWEEP:-evaluation} release=${EVALUATION_RELEASE:-} hosts=${EVALUATION_HOSTS:-}
rounds=${EVALUATION_ROUNDS:-2} seconds=${EVALUATION_SECONDS:-6}
lab=evaluation${release:+-$release} store=$folder/results.sqlite
if [ $# = 0 ]; then
    for program in "$programs"/*; do
        [ "$(readlink "$program")" != real_workloads.py ] || set -- "$@" "$(basename "$program")"
    done
fi
for name in "$@"; do
    shift
    "$programs/$name" describe >/dev/null  # a missing program ends this before the sweep
    set -- "$@" --workload "program:$programs/$name"
done
mkdir -p "$folder"
trap 'echo "interrupted: run it again to continue, or remove the lab: $cephfit lab down --name $lab" >&2' EXIT
"$cephfit" lab status --name "$lab" >/dev/null 2>&1 || "$cephfit" lab up --name "$lab" ${hosts:+--hosts "$hosts"} ${release:+--release "$release"}
if [ ! -e "$folder/baselines.csv" ]; then
    "$cephfit" sweep run "$sweep" --target "lab:$lab" --store "$store"
    "$cephfit" report --store "$store" -o "$folder/baselines.csv"
fi
mkdir -p "$folder/images"
CEPHFIT_IMAGES=$(realpath "$folder/images")
export CEPHFIT_IMAGES CEPHFIT_EQUAL_WORK=1
"$cephfit" evaluate --sweep "$sweep" --store "$store" --target "lab:$lab" "$@" \
    --rounds "$rounds" --seconds "$seconds" --traces "$folder/traces"
mkdir -p "$folder/profiles"
for trace in "$folder"/traces/*; do
    name=$(basename "$trace")
    "$cephfit" trace profile "$trace"/*.blktrace.* --name "$name" -o "$folder/profiles/$name.json"
done
trap - EXIT
rm -r "$folder/images"
"$cephfit" lab down --name "$lab"
"$cephfit" assess "$store" --profile "$folder/profiles" --export "$folder/assessed"
echo "the measured values are in $store, the profiles in $folder/profiles, and both for cephfit assess in $folder/assessed"
