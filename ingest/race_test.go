//go:build race

package ingest_test

// slowness is how many times longer the race detector makes a chain, its node and the ingester take for a request, on a machine that does other
// things too. Limits that only end what hangs are multiplied by it.
const slowness = 6
