#!/bin/sh
# evaluate.sh FOLDER CEPHFIT: measure the sweep `evaluation` and run all real workloads on its configurations, on a lab
# of its own. Run again after an interrupt, it continues: the lab is removed only at the end.
set -eu
folder=$1 cephfit=$2
programs=$(dirname "$0")/workloads/programs
lab=evaluation store=$folder/results.sqlite
rounds=${EVALUATION_ROUNDS:-2} seconds=${EVALUATION_SECONDS:-6}
mkdir -p "$folder"
trap 'echo "interrupted: run it again to continue, or remove the lab: $cephfit lab down --name $lab" >&2' EXIT
"$cephfit" lab status --name "$lab" >/dev/null 2>&1 || "$cephfit" lab up --name "$lab"
if [ ! -e "$folder/baselines.csv" ]; then
    "$cephfit" sweep run evaluation --target "lab:$lab" --store "$store"
    "$cephfit" report --store "$store" -o "$folder/baselines.csv"
fi
set --
for program in "$programs"/*; do
    [ ! -L "$program" ] || set -- "$@" --workload "program:$program"
done
mkdir -p "$folder/images"
CEPHFIT_IMAGES=$(realpath "$folder/images")
export CEPHFIT_IMAGES CEPHFIT_EQUAL_WORK=1
"$cephfit" evaluate --sweep evaluation --store "$store" --target "lab:$lab" "$@" \
    --rounds "$rounds" --seconds "$seconds" --traces "$folder/traces"
for trace in "$folder"/traces/*; do
    name=$(basename "$trace")
    "$cephfit" trace profile "$trace"/*.blktrace.* --name "$name" -o "$folder/$name.json"
done
trap - EXIT
rm -r "$folder/images"
"$cephfit" lab down --name "$lab"
echo "the measured values are in $store, the profiles in $folder"
