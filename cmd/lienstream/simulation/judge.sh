#!/usr/bin/env bash
# Judges the judge: builds the simulation with each fault of testdata/mutants put into the code, by an overlay that
# leaves the sources alone, and counts runs until it finds something; with FAULTS, of these kinds alone. Run it from the
# repository's root.
set -euo pipefail
seconds=${SECONDS_EACH:-120} seed=${SEED:-1000} missed=0
work=$(mktemp -d)
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
  echo "{\"Replace\":{$replace}}" > "$work/overlay.json"
  go test -c -overlay "$work/overlay.json" -o "$work/simulate" ./cmd/lienstream/simulation
  if (cd cmd/lienstream/simulation && GOMAXPROCS=1 GOGC=400 "$work/simulate" -test.v -test.run '^TestFreshSeeds$' \
      -sim.first -sim.time "${seconds}s" -sim.seed "$seed" -sim.faults "${FAULTS:-}") > "$work/log" 2>&1; then
    echo "MISSED $name: $(grep -o '[0-9]* runs' "$work/log" | head -1)"
    missed=1
  else
    echo "found  $name: $(grep -o '[0-9]* runs' "$work/log" | head -1 || echo 'the oracle') $(grep -m1 -oE '× [^:]*(: /[a-z]*)?|the oracle:.{0,80}|panic: .{0,80}' "$work/log" || true)"
  fi
done
exit $missed
