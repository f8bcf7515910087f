#!/bin/sh
# pgbench on PostgreSQL on ext4 on one block device, in a guest: a real workload to verify predictions with. The same
# steps as `cephfit verify` makes on a cluster. What pgbench says goes to the standard output. By the environment:
#   CEPHFIT_DEVICE   block device; all that is on it is lost by the step prepare
#   CEPHFIT_STEPS    prepare, warm (read the device once), run: any of them, with spaces between them
#   CEPHFIT_SCALE, CEPHFIT_CLIENTS, CEPHFIT_SCRIPT, CEPHFIT_SEED, CEPHFIT_WARMUP, CEPHFIT_SECONDS   as pgbench takes them
#   CEPHFIT_MEMORY   bytes that the server may have, with all the page cache it fills
#   CEPHFIT_WAL      MiB of write-ahead log
#   CEPHFIT_SETTINGS of PostgreSQL: key=value, with spaces between them
#   CEPHFIT_TRACED   if not empty, the measured run is traced by trace_begin and trace_end, functions that are
#                    defined before this script
set -eu
place=/run/cephfit
disk=$place/disk
sockets=$place/socket
group=/sys/fs/cgroup/cephfit
export PGHOST=$sockets PGUSER=postgres PGDATABASE=postgres LC_ALL=C

if ! command -v postgres >/dev/null 2>&1; then
    for folder in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; do
        [ -x "$folder/postgres" ] && PATH=$folder:$PATH
    done
fi
command -v pgbench >/dev/null 2>&1 || {
    echo "this image has no PostgreSQL: cephfit image build --with postgresql" >&2
    exit 3
}

# Programs refuse to be root; "$@" is one of them with its arguments.
as_postgres() { su -s /bin/sh -c 'exec "$@"' -- postgres sh "$@"; }

# The server is in a control group of its own, so that the disk is measured and not the guest's memory.
limit_memory() {
    [ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 cgroup /sys/fs/cgroup
    mkdir -p "$group"
    [ -e "$group/memory.max" ] || echo +memory >/sys/fs/cgroup/cgroup.subtree_control
    echo "$CEPHFIT_MEMORY" >"$group/memory.max"
}

mount_disk() {
    mkdir -p "$disk" "$sockets"
    mount -t ext4 -o noatime "$CEPHFIT_DEVICE" "$disk"
    chown postgres "$disk" "$sockets"
}

# "$@" are settings beyond the usual ones.
start_server() {
    for setting in $CEPHFIT_SETTINGS "max_wal_size=${CEPHFIT_WAL}MB" "min_wal_size=${CEPHFIT_WAL}MB" \
        "max_connections=$((CEPHFIT_CLIENTS + 10))" listen_addresses= "unix_socket_directories=$sockets" "$@"; do
        echo "$setting" | sed "s/=\(.*\)/ = '\1'/"
    done >"$disk/settings"
    chmod 644 "$disk/settings"
    (
        echo 0 >"$group/cgroup.procs"
        as_postgres postgres -D "$disk/data" -c "config_file=$disk/settings" >"$place/server.log" 2>&1
    ) &
    server=$!
    until query 'SELECT 1' >/dev/null 2>&1; do
        kill -0 "$server" 2>/dev/null || {
            tail -n 5 "$place/server.log" >&2
            exit 4
        }
        sleep 0.2
    done
}

stop_server() {
    kill -INT "$(head -n 1 "$disk/data/postmaster.pid")"
    wait "$server" || true
}

query() { psql --quiet --no-psqlrc --tuples-only --no-align --command "$1"; }

bench() {
    pgbench --builtin "$CEPHFIT_SCRIPT" --time "$1" --client "$CEPHFIT_CLIENTS" --jobs 1 --random-seed "$2" \
        --protocol prepared --report-per-command postgres 2>&1
}

# busybox has no nanoseconds in date, but ts.
now() {
    case $(date +%N) in
    [0-9]*) date +%s.%N ;;
    *) echo | ts %.s | tr -d ' ' ;;
    esac
}

prepare() {
    mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$CEPHFIT_DEVICE" >&2
    mount_disk
    mkdir "$disk/data"
    chown postgres "$disk/data"
    as_postgres initdb --pgdata "$disk/data" --username postgres --auth trust --locale C --encoding UTF8 --no-sync \
        >"$place/initdb.log" 2>&1 || {
        tail -n 5 "$place/initdb.log" >&2
        exit 5
    }
    # Loading is not measured: it need not wait for the disk at every commit.
    start_server fsync=off wal_level=minimal max_wal_senders=0
    pgbench --initialize --quiet --scale "$CEPHFIT_SCALE" postgres >"$place/load.log" 2>&1 || {
        tail -n 5 "$place/load.log" >&2
        exit 6
    }
    query CHECKPOINT
    stop_server
    start_server
    # All segments of the log, of 16 MiB each, are there before the first measured run.
    for _ in $(seq $((CEPHFIT_WAL / 32))); do
        query 'CREATE TABLE settling (); DROP TABLE settling' && query 'SELECT pg_switch_wal()' >/dev/null
    done
    query CHECKPOINT
    stop_server
    umount "$disk"
    echo "CEPHFIT-PREPARED $(now)"
}

warm() { cat "$CEPHFIT_DEVICE" >/dev/null; }

run() {
    mount_disk
    start_server
    query CHECKPOINT
    sync
    echo 3 >/proc/sys/vm/drop_caches
    if [ "$CEPHFIT_WARMUP" -gt 0 ]; then
        echo CEPHFIT-WARMUP
        bench "$CEPHFIT_WARMUP" "$CEPHFIT_SEED"
    fi
    [ -z "${CEPHFIT_TRACED:-}" ] || trace_begin "$CEPHFIT_DEVICE"
    echo "CEPHFIT-STARTED $(now)"
    bench "$CEPHFIT_SECONDS" "$((CEPHFIT_SEED + 1))"
    echo "CEPHFIT-FINISHED $(now)"
    [ -z "${CEPHFIT_TRACED:-}" ] || trace_end
    echo "CEPHFIT-DATABASE-NBYTES $(query "SELECT pg_database_size('postgres')")"
    echo "CEPHFIT-SERVER $(query 'SHOW server_version')"
    stop_server
    umount "$disk"
}

limit_memory
for step in $CEPHFIT_STEPS; do "$step"; done
