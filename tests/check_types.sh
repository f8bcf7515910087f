#!/bin/sh
# check_types.sh BIN: mypy --strict on the built package, because type checkers do not see through the editable mapping,
# and on the benchmarks, which no test runs.
set -eu
bin=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Setuptools packs whatever an earlier build left there, also modules that have since been deleted.
rm -rf build/lib
"$bin/python" -m build --wheel --outdir "$work/dist" . >"$work/build.log" 2>&1 || { tail -n 30 "$work/build.log" >&2; exit 1; }
"$bin/python" -m zipfile -e "$work"/dist/*.whl "$work/package"
config=$(realpath pyproject.toml) benchmarks=$(realpath benchmarks)
cd "$work/package"
MYPYPATH=$benchmarks "$bin/python" -m mypy --strict --config-file "$config" --cache-dir "$work/cache" -p cephfit \
    $(for file in "$benchmarks"/*.py; do echo -m "$(basename "$file" .py)"; done)
