package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// goal is the bounds of a figure; zero: none.
type goal struct {
	least, most float64 // of ours
	ratio       float64 // least, of ours to the reference
	share       float64 // most, of ours to the reference: what most is on a machine of any speed
	title       float64 // most, of ours to the reference, by what the comparison as a whole is to show
}

func (g goal) String() string {
	var parts []string
	if g.least > 0 {
		parts = append(parts, "≥ "+format(g.least))
	}
	if g.most > 0 {
		parts = append(parts, "≤ "+format(g.most))
	}
	if g.ratio > 0 {
		parts = append(parts, fmt.Sprintf("ratio ≥ %.2g", g.ratio))
	}
	return strings.Join(parts, ", ")
}

// figure is a row of the table.
type figure struct {
	Name      string  `json:"name"`
	Unit      string  `json:"unit"`
	Ours      float64 `json:"ours"`
	Reference float64 `json:"reference,omitempty"` // of the same run
	Ratio     float64 `json:"ratio,omitempty"`
	Goal      string  `json:"goal,omitempty"`
	Verdict   string  `json:"verdict,omitempty"` // holds or short
	ByRatio   string  `json:"byRatio,omitempty"` // the goal as a ratio, and its verdict
	Title     string  `json:"title,omitempty"`   // the same of what the comparison as a whole is to show
	Spread    string  `json:"spread,omitempty"`  // from the least to the greatest, ours / the reference

	goal goal
}

// judge fills in the ratio and the verdict. A figure without a goal has no verdict.
func (f figure) judge() figure {
	f.Goal = f.goal.String()
	if f.Reference > 0 {
		f.Ratio = f.Ours / f.Reference
	}
	f.ByRatio, f.Title = f.within(f.goal.share), f.within(f.goal.title)
	if f.Goal == "" {
		return f
	}
	f.Verdict = "holds"
	if f.Ours < f.goal.least || f.goal.most > 0 && f.Ours > f.goal.most || f.Ratio < f.goal.ratio {
		f.Verdict = "short"
	}
	return f
}

// within judges the ratio by a bound; zero: none.
func (f figure) within(most float64) string {
	switch {
	case most == 0:
		return ""
	case f.Reference > 0 && f.Ratio <= most:
		return fmt.Sprintf("≤ %.2f holds", most)
	}
	return fmt.Sprintf("≤ %.2f short", most)
}

// report gathers figures.
type report struct {
	Machine string   `json:"machine"`
	Logs    int      `json:"logs"`
	Blocks  uint64   `json:"blocks"`
	Parts   int      `json:"partitions"`
	Figures []figure `json:"figures"`

	progress io.Writer
}

func (r *report) add(name, unit string, ours, reference float64, g goal) {
	f := figure{Name: name, Unit: unit, Ours: ours, Reference: reference, goal: g}.judge()
	r.Figures = append(r.Figures, f)
	fmt.Fprintf(r.progress, "  %s: %s %s %s\n", f.Name, format(f.Ours), f.Unit, f.Verdict)
}

// addSpread adds the medians of ours and of the reference, if there is one.
func (r *report) addSpread(name, unit string, ours, reference []float64, g goal) {
	spread := func(v []float64) string { return format(slices.Min(v)) + " to " + format(slices.Max(v)) }
	of, text := 0.0, spread(ours)
	if len(reference) > 0 {
		of, text = median(reference), text+" / "+spread(reference)
	}
	r.add(name, unit, median(ours), of, g)
	r.Figures[len(r.Figures)-1].Spread = text
}

// table writes a row a figure.
func (r *report) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	byRatio := slices.ContainsFunc(r.Figures, func(f figure) bool { return f.ByRatio != "" })
	titled := slices.ContainsFunc(r.Figures, func(f figure) bool { return f.Title != "" })
	heads := ""
	if byRatio {
		heads = "goal as a ratio\t"
	}
	if titled {
		heads += "twice as good, memory a third\t"
	}
	fmt.Fprintln(t, "figure\tours\treference\tratio\tgoal\t\t"+heads+"spread")
	for _, f := range r.Figures {
		reference, ratio := "", ""
		if f.Reference > 0 {
			reference, ratio = format(f.Reference), fmt.Sprintf("%.2f", f.Ratio)
		}
		more := ""
		if byRatio {
			more = f.ByRatio + "\t"
		}
		if titled {
			more += f.Title + "\t"
		}
		fmt.Fprintf(t, "%s\t%s %s\t%s\t%s\t%s\t%s\t%s%s\n", f.Name, format(f.Ours), f.Unit, reference, ratio, f.Goal, f.Verdict, more, f.Spread)
	}
	return t.Flush()
}

func (r *report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o600)
}

// format groups the digits of large numbers and keeps three of small ones.
func format(v float64) string {
	if math.Abs(v) < 1000 {
		return fmt.Sprintf("%.3g", v)
	}
	s := fmt.Sprintf("%.0f", v)
	var groups []string
	for ; len(s) > 3; s = s[:len(s)-3] {
		groups = append(groups, s[len(s)-3:])
	}
	slices.Reverse(groups)
	return strings.Join(append([]string{s}, groups...), ",")
}

// median is the middle value, or the mean of the two in the middle.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// quantile is the smallest value that so many of the values do not exceed.
func quantile(values []float64, q float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return v[min(int(math.Ceil(q*float64(len(v)))), len(v))-1]
}
