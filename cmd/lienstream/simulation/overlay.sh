#!/usr/bin/env bash
# overlay.sh DIR: writes DIR/overlay.json and DIR/go.mod, with which `go test -overlay -modfile` builds on a runtime that takes no
# decision by chance or by the real clock inside of a bubble, and on an embedded broker that takes none by addresses: runtime.patch
# is put on copies of Go's own files, kfake.patch on one of the broker's module.
set -euo pipefail
dir=$1 here=$(cd "$(dirname "$0")" && pwd) wants=go1.26.8
has=$(go env GOVERSION)
if [ "$has" != "$wants" ]; then
  echo "runtime.patch is for $wants, and this is $has: 'make simulate EXACT=' runs on the runtime as it is, and a seed then repeats its faults, not every byte; or GOTOOLCHAIN=$wants" >&2
  exit 1
fi
module=$(go env GOMOD) fresh=1
for file in "$here"/*.patch "$here/overlay.sh" "$module"; do
  [ "$dir/overlay.json" -nt "$file" ] || fresh=
done
[ -z "$fresh" ] || exit 0
rm -rf "$dir"
root=$(go env GOROOT) replace=
for file in $(sed -n 's|^+++ b/||p' "$here/runtime.patch"); do
  install -D -m 644 "$root/$file" "$dir/$file"
  replace="$replace${replace:+,}\"$root/$file\":\"$dir/$file\""
done
patch -s -d "$dir" -p1 <"$here/runtime.patch"
broker=github.com/twmb/franz-go/pkg/kfake
cp -r --no-preserve=mode "$(go list -m -f '{{.Dir}}' $broker)" "$dir/kfake" # no file of the module cache can be replaced
patch -s -d "$dir/kfake" -p1 <"$here/kfake.patch"
cp "${module%.mod}.sum" "$dir/go.sum"
{ cat "$module" && echo "replace $broker => $dir/kfake"; } >"$dir/go.mod"
echo "{\"Replace\":{$replace}}" >"$dir/overlay.json"
