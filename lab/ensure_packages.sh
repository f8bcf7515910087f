#!/bin/sh
# ensure_packages.sh LIST: install the Debian packages of LIST that are missing, as root or by sudo;
# without either, say what to install and exit with 2.
set -eu
list=$1
wanted=$(sed 's/#.*//' "$list" | tr -s ' \n' ' ')
command -v dpkg-query >/dev/null || {
    echo "cephfit: this is no Debian; install the counterparts of the packages in $list: $wanted" >&2
    exit 2
}
missing=
for package in $wanted; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root='sudo -n'
else
    echo "cephfit: these Debian packages are missing and this is neither root nor can it use sudo." >&2
    echo "  run as root: apt-get install --no-install-recommends$missing" >&2
    exit 2
fi
echo "installing Debian packages:$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Nothing that is installed starts by itself now: the lab runs its daemons by hand and on ports of its own.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f "$log"; $as_root rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
    $as_root chmod 755 $policy
fi
install="env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -o Dpkg::Options::=--force-confold"
# shellcheck disable=SC2086 # both are lists of words
if ! { $as_root apt-get update -q && $as_root $install $missing; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "cephfit: apt-get could not install:$missing" >&2
    exit 2
fi
