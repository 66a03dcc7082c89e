#!/usr/bin/env bash
# overlay.sh DIR: writes DIR/overlay.json and DIR/go.mod, for `go test -overlay DIR/overlay.json -modfile DIR/go.mod`. They build on a
# runtime that takes no decision by chance, by the real clock or by addresses inside of a bubble: runtime.patch is put on copies of
# Go's own files; and with an embedded broker whose rebalances end, as Apache Kafka's do: kfake.patch.
set -euo pipefail
dir=$1 here=$(cd "$(dirname "$0")" && pwd) wants=go1.26.8
has=$(go env GOVERSION)
if [ "$has" != "$wants" ]; then
  echo "runtime.patch is for $wants, and this is $has: 'make simulate EXACT=' runs on the runtime as it is, and a seed then repeats its faults, not every byte; or GOTOOLCHAIN=$wants" >&2
  exit 1
fi
fresh=1
for file in "$here/runtime.patch" "$here/kfake.patch" "$here/overlay.sh" "$here/../../../go.mod" "$here/../../../go.sum"; do
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
cp -r "$(go list -m -f '{{.Dir}}' github.com/twmb/franz-go/pkg/kfake)" "$dir/kfake"
chmod -R u+w "$dir/kfake"
patch -s -d "$dir/kfake" -p1 <"$here/kfake.patch"
cp "$here/../../../go.mod" "$here/../../../go.sum" "$dir"
go mod edit -replace "github.com/twmb/franz-go/pkg/kfake=$dir/kfake" "$dir/go.mod"
echo "{\"Replace\":{$replace}}" >"$dir/overlay.json"
