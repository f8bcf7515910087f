#!/bin/sh
# back_ends.sh FOLDER BIN [OPTION...]: run real workloads on all back ends of a lab of its own, and compare what `advise` says. Run
# again after an interrupt, it continues: the lab is removed only at the end. Options are those of back_end_runs.py.
set -eu
folder=$1 bin=$2
shift 2
lab=back-ends
trap 'echo "interrupted: run it again to continue, or remove the lab: $bin/cephfit lab down --name $lab" >&2' EXIT
"$bin/cephfit" lab status --name "$lab" >/dev/null 2>&1 ||
    "$bin/cephfit" lab up --name "$lab" --with swift,iscsi,nfs,local
"$bin/python" benchmarks/back_end_runs.py "$lab" "$folder" "$@"
trap - EXIT
"$bin/cephfit" lab down --name "$lab"
"$bin/python" benchmarks/back_end_advice.py --tables "$folder"
"$bin/python" benchmarks/back_end_advice.py "$folder"
