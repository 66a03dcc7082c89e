#!/usr/bin/env bash
# Judges the judge: builds the simulation once with every fault of testdata/mutants in the code (./judge), by an overlay that
# leaves the sources alone, does one fault after another, and counts runs until it is found: RUNS_EACH at the most, or as many
# as SECONDS_EACH is enough for; with FAULTS, of these kinds alone. What it counts goes into the table of docs/simulation.md.
# The oracle is that of the code without faults, kept in ORACLE if that is named. Run it from the repository's root.
set -euo pipefail
seed=${SEED:-1000} missed=0 table=docs/simulation.md mutants=cmd/lienstream/simulation/testdata/mutants
limit=(-sim.time "${SECONDS_EACH:-120}s")
[ -z "${RUNS_EACH:-}" ] || limit=(-sim.time 0s -sim.runs "$RUNS_EACH")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
oracle=${ORACLE:-$work/oracle}
export CGO_ENABLED=0 GOEXPERIMENT=norandomizedheapbase64 # as the Makefile does for a runtime that takes no decision by chance
cmd/lienstream/simulation/overlay.sh "$PWD/.tools/overlay"
go run ./cmd/lienstream/simulation/judge $mutants .tools/overlay/overlay.json "$work"
go test -c -vet=off -ldflags=-w -tags exact -overlay "$work/overlay.json" -modfile .tools/overlay/go.mod -o "$work/simulate" ./cmd/lienstream/simulation
simulate() {
  (cd cmd/lienstream/simulation && GOMAXPROCS=1 GOGC=400 GODEBUG=adaptivestackstart=1 "$work/simulate" -test.v -test.timeout 0 \
    -test.run '^TestFreshSeeds$' -sim.seed "$seed" -sim.oracle "$oracle" "$@")
}
[ -s "$oracle" ] || simulate -sim.runs 1 -sim.calm > "$work/log" || { cat "$work/log"; exit 1; }
for patch in "$mutants"/${ONLY:-*}.patch; do
  name=$(basename "$patch" .patch) status=0
  LIENSTREAM_MUTANT=$name simulate -sim.first -sim.faults "${FAULTS:-}" "${limit[@]}" > "$work/log" 2>&1 || status=$?
  ended=$(grep -c ': trace ' "$work/log" || true)
  said=$(sed -nE 's/^ *[0-9]+ × ([^:]*(: \/[a-z]*)?).*/\1/p; s/^panic: (.{0,60}).*/a panic: \1/p' "$work/log" | head -1 || true)
  if [ $status -eq 0 ]; then
    after="**not in $ended**" said= missed=1
  elif [ -z "$said" ]; then
    echo "$name: ended with status $status and no finding:"; tail -20 "$work/log"; exit 1
  else
    after=$ended
    [[ $said != "a panic"* ]] || after=$((ended + 1)) # that run did not come to its trace
  fi
  after="$after${FAULTS:+ of \`FAULTS='$FAULTS'\`}"
  printf '%-45s %-22s %s\n' "$name" "$after" "$said"
  NAME=${name//-/ } AFTER=$after SAID=$said awk '
    index($0, "| " ENVIRON["NAME"] " |") == 1 { $0 = "| " ENVIRON["NAME"] " | " ENVIRON["AFTER"] " | " ENVIRON["SAID"] " |" } { print }' "$table" > "$work/table"
  cat "$work/table" > "$table"
done
exit $missed
