#!/bin/sh
# releases.sh FOLDER BIN [WORKLOAD ...]: measure the sweep `releases.yaml` on a lab of each Ceph release, one lab after
# the other, run real workloads on its configurations, and compare the releases. Run again after an interrupt, it
# continues.
set -eu
folder=$1 bin=$2
shift 2
[ $# -gt 0 ] || set -- mail key-value file-server
sweep=$(dirname "$0")/releases.yaml store=$folder/releases.sqlite
mkdir -p "$folder/images"
CEPHFIT_IMAGES=$(realpath "$folder/images")
export CEPHFIT_IMAGES
for lab in pacific reef tentacle; do
    [ ! -e "$folder/$lab.done" ] || continue
    "$bin/cephfit" lab status --name "$lab" >/dev/null 2>&1 ||
        "$bin/cephfit" lab up --name "$lab" --release "$lab"
    if [ ! -e "$folder/$lab.measured" ]; then
        "$bin/cephfit" sweep run "$sweep" --target "lab:$lab" --store "$store"
        touch "$folder/$lab.measured" # the same command would begin another run
    fi
    workloads=
    for workload in "$@"; do
        workloads="$workloads --workload $workload"
    done
    [ "$lab" != pacific ] || workloads="$workloads --traces $folder/traces"
    # shellcheck disable=SC2086
    "$bin/cephfit" evaluate --sweep "$sweep" --store "$store" --target "lab:$lab" $workloads --rounds 3 --seconds 6
    touch "$folder/$lab.done"
    "$bin/cephfit" lab down --name "$lab"
done
for workload in "$@"; do
    "$bin/cephfit" trace profile "$folder/traces/$workload"/*.blktrace.* --name "$workload" -o "$folder/$workload.json"
    set -- "$@" --profile "$folder/$workload.json"
    shift
done
"$bin/cephfit" compare --store "$store" --configuration A "$@" \
    --target lab:pacific --target lab:reef --target lab:tentacle
