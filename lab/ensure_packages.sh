#!/bin/sh
# ensure_packages.sh LIST: install the missing Debian packages of LIST, as root or with sudo;
# without either, print what to install and exit with 2.
set -eu
list=$1
wanted=$(sed 's/#.*//' "$list" | tr -s ' \n' ' ')
command -v dpkg-query >/dev/null || {
    echo "cephfit: this is not Debian; install the equivalents of the packages in $list: $wanted" >&2
    exit 2
}
as_root= may_install=yes
if [ "$(id -u)" != 0 ]; then
    as_root='sudo -n'
    command -v sudo >/dev/null && sudo -n true 2>/dev/null || may_install=
fi
# While packages are installed, this file keeps their services from starting (where invoke-rc.d looks for it). One that
# a kill -9 leaves would do so permanently; its second line has the process id of its owner.
policy=${DPKG_ROOT:-}/usr/sbin/policy-rc.d
owner=$(sed -n '2s/^# cephfit installs packages, process \([0-9]*\)$/\1/p' "$policy" 2>/dev/null || true)
if [ -n "$owner" ] && [ ! -d "/proc/$owner" ]; then
    if [ -n "$may_install" ]; then
        $as_root rm -f "$policy"
    else
        echo "cephfit: a run that was killed left $policy: no package's service starts; as root, delete it" >&2
    fi
fi
missing=
for package in $wanted; do
    found=
    # Of a|b any one will do: names with a version differ between releases of Debian.
    for one in $(echo "$package" | tr '|' ' '); do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$one" 2>/dev/null)" != installed ] || found=yes
    done
    [ -n "$found" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ -z "$may_install" ]; then
    echo "cephfit: these Debian packages are missing and this is neither root nor can it use sudo." >&2
    echo "  run as root: apt-get install --no-install-recommends$missing" >&2
    exit 2
fi
echo "installing Debian packages:$missing"
log=$(mktemp)
ours=
tidy() {
    rm -f "$log"
    [ -z "$ours" ] || $as_root rm -f "$policy"
}
# dash runs the trap on EXIT for no signal; whoever waits is to see that it was one.
trap tidy EXIT
trap 'trap - EXIT INT; tidy; kill -s INT $$' INT
trap 'trap - EXIT TERM; tidy; kill -s TERM $$' TERM
trap 'trap - EXIT HUP; tidy; kill -s HUP $$' HUP
# Installed services do not start now: the lab starts its own daemons on separate ports.
if [ ! -e "$policy" ]; then
    ours=yes
    printf '#!/bin/sh\n# cephfit installs packages, process %s\nexit 101\n' $$ | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi
# Prints the first of a|b that this release of Debian has, else the last one.
available() {
    for one in $(echo "$1" | tr '|' ' '); do
        if [ "$one" = "$1" ] || apt-cache show "$one" >/dev/null 2>&1; then
            break
        fi
    done
    echo "$one"
}
chosen() {
    for package in $missing; do
        available "$package"
    done
}
install="env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -o Dpkg::Options::=--force-confold"
# shellcheck disable=SC2086 # both are lists of words
if ! { $as_root apt-get update -q && $as_root $install $(chosen); } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "cephfit: apt-get could not install:$missing" >&2
    exit 2
fi
