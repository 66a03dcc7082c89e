#!/usr/bin/env bash
# overlay.sh DIR: writes DIR/overlay.json, with which `go test -overlay` builds on a runtime that takes no decision by
# chance or by the real clock inside of a bubble: runtime.patch is put on copies of Go's own files.
set -euo pipefail
dir=$1 patch=$(cd "$(dirname "$0")" && pwd)/runtime.patch wants=go1.26.8
has=$(go env GOVERSION)
if [ "$has" != "$wants" ]; then
  echo "runtime.patch is for $wants, and this is $has: 'make simulate EXACT=' runs on the runtime as it is, and a seed then repeats its faults, not every byte; or GOTOOLCHAIN=$wants" >&2
  exit 1
fi
[ -e "$dir/overlay.json" ] && [ "$dir/overlay.json" -nt "$patch" ] && exit 0
rm -rf "$dir" && mkdir -p "$dir/src/runtime"
root=$(go env GOROOT) replace=
for file in $(sed -n 's|^+++ b/||p' "$patch"); do
  cp "$root/$file" "$dir/$file"
  replace="$replace${replace:+,}\"$root/$file\":\"$dir/$file\""
done
patch -s -d "$dir" -p1 <"$patch"
echo "{\"Replace\":{$replace}}" >"$dir/overlay.json"
