package main

import (
	"bytes"
	"strings"
	"testing"
)

// On a machine of half the speed a goal in seconds is missed, and the same goal as a ratio may hold.
func TestTableJudgesByRatio(t *testing.T) {
	r := &report{progress: &bytes.Buffer{}}
	r.addSpread("rebuild", "s", []float64{13, 14}, []float64{30, 30}, goal{most: 7, share: 7 / 14.8, title: twice})
	r.addSpread("latency", "ms", []float64{10}, []float64{88}, goal{most: 8, share: 8.0 / 83, title: twice})
	r.addSpread("memory", "MB", []float64{600}, []float64{1700}, goal{most: 600, share: third, title: third})
	r.addSpread("processor time", "s", []float64{20}, []float64{10}, goal{})
	var b bytes.Buffer
	if err := r.table(&b); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"rebuild 13.5 s 30 0.45 ≤ 7 short ≤ 0.47 holds ≤ 0.50 holds 13 to 14 / 30 to 30",
		"latency 10 ms 88 0.11 ≤ 8 short ≤ 0.10 short ≤ 0.50 holds 10 to 10 / 88 to 88",
		"memory 600 MB 1,700 0.35 ≤ 600 holds ≤ 0.33 short ≤ 0.33 short 600 to 600 / 1,700 to 1,700",
		"processor time 20 s 10 2.00 20 to 20 / 10 to 10",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
