//go:build !race

package ingest_test

const slowness = 1
