#!/usr/bin/env bash
# Judges the judge: builds the simulation with each fault of testdata/mutants put into the code, by an overlay that
# leaves the sources alone, and counts runs until it finds something; with FAULTS, of these kinds alone. The oracle is that
# of the code without faults. Run it from the repository's root.
set -euo pipefail
seconds=${SECONDS_EACH:-120} seed=${SEED:-1000} missed=0
work=$(mktemp -d)
export GOEXPERIMENT=norandomizedheapbase64 # as the Makefile does for a runtime that takes no decision by chance
cmd/lienstream/simulation/overlay.sh .tools/overlay
runtime=$(sed -E 's/^\{"Replace":\{(.*)\}\}$/\1/' .tools/overlay/overlay.json)
build() { go test -c -vet=off -tags exact -overlay "$1" -o "$2" ./cmd/lienstream/simulation; }
build .tools/overlay/overlay.json "$work/honest"
(cd cmd/lienstream/simulation && GOMAXPROCS=1 GOGC=400 "$work/honest" -test.run '^TestFreshSeeds$' -sim.runs 1 -sim.calm -sim.seed "$seed" -sim.oracle "$work/oracle") > "$work/log"
trap 'rm -rf "$work"' EXIT
for patch in cmd/lienstream/simulation/testdata/mutants/${ONLY:-*}.patch; do
  name=$(basename "$patch" .patch)
  rm -rf "$work/src" && mkdir "$work/src"
  replace=
  for file in $(sed -n 's|^+++ b/||p' "$patch"); do
    mkdir -p "$work/src/$(dirname "$file")"
    cp "$file" "$work/src/$file"
    replace="$replace${replace:+,}\"$PWD/$file\":\"$work/src/$file\""
  done
  patch -s -d "$work/src" -p1 < "$patch"
  echo "{\"Replace\":{$runtime,$replace}}" > "$work/overlay.json"
  build "$work/overlay.json" "$work/simulate"
  if (cd cmd/lienstream/simulation && GOMAXPROCS=1 GOGC=400 GODEBUG=adaptivestackstart=1 "$work/simulate" -test.v -test.run '^TestFreshSeeds$' \
      -sim.first -sim.time "${seconds}s" -sim.seed "$seed" -sim.faults "${FAULTS:-}" -sim.oracle "$work/oracle") > "$work/log" 2>&1; then
    echo "MISSED $name: $(grep -o '[0-9]* runs' "$work/log" | head -1)"
    missed=1
  else
    echo "found  $name: $(grep -o '[0-9]* runs' "$work/log" | head -1 || echo 'the oracle') $(grep -m1 -oE '× [^:]*(: /[a-z]*)?|the oracle:.{0,80}|panic: .{0,80}' "$work/log" || true)"
  fi
done
exit $missed
