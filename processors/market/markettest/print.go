package markettest

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

func printRow(out *strings.Builder, r state.Row) error {
	if r.Table.Entity == nil {
		return nil // a share of a sum: see "stats" and "pools"
	}
	key := string(r.Table.Entity.Key(nil, r.Key))
	if r.Value == nil {
		fmt.Fprintf(out, "%s %s: gone\n", r.Table.Entity.Name, short(key))
		return nil
	}
	if r.Same {
		return nil
	}
	row, known := newRows()[r.Table.Entity.Name]
	if !known {
		return fmt.Errorf("%s is no entity", r.Table.Entity.Name)
	}
	if err := row.UnmarshalBinary(r.Value); err != nil {
		return err
	}
	if _, err := r.Table.Entity.Encode(nil, r.Value, topics.BlockRef{}); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s %s:%s\n", r.Table.Entity.Name, short(key), printFields(reflect.ValueOf(row).Elem()))
	return nil
}

// printFields prints what is not zero, and the states whatever they are.
func printFields(v reflect.Value) string {
	var b strings.Builder
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() && f.Kind() != reflect.Uint8 || v.Type().Field(i).Name == "ID" {
			continue
		}
		text := printValue(f)
		if v.Type().Field(i).Tag.Get("signed") != "" {
			text = signedText(f.Addr().Interface().(*uint256.Int))
		}
		fmt.Fprintf(&b, " %s=%s", v.Type().Field(i).Name, text)
	}
	return b.String()
}

func printValue(f reflect.Value) string {
	if f.Kind() == reflect.Pointer {
		f = f.Elem()
	}
	switch v := f.Interface().(type) {
	case topics.Funding, topics.EpochRates, topics.PoolLimits:
		return "{" + strings.TrimSpace(printFields(f)) + "}"
	case uint256.Int:
		return v.Dec()
	case common.Address:
		return short(v.Hex())
	case common.Hash:
		return short(v.Hex())
	case contracts.DealState:
		return contracts.DealStateNames[v]
	case contracts.BidState:
		return contracts.BidStateNames[v]
	case contracts.BalanceKind:
		return contracts.BalanceKindNames[v]
	case contracts.DripSource:
		return contracts.DripSourceNames[v]
	case contracts.Lane:
		return contracts.LaneNames[v]
	default:
		return fmt.Sprint(v)
	}
}

// short drops the leading zeros of the hex numbers in a text.
func short(text string) string {
	parts := strings.Split(text, ":")
	for i, p := range parts {
		if rest, ok := strings.CutPrefix(p, "0x"); ok {
			parts[i] = "0x" + strings.ToLower(strings.TrimLeft(rest, "0"))
		}
	}
	return strings.Join(parts, ":")
}

func printEvent(out *strings.Builder, e state.Event) {
	_, index, _ := strings.Cut(string(e.Key), ":")
	name := "?"
	for _, known := range eventNames() {
		// The name stands in the value as Avro has it: behind its length, doubled for the sign.
		if bytes.Contains(e.Value, append([]byte{byte(2 * len(known))}, known...)) {
			name = known
		}
	}
	fmt.Fprintf(out, "evt.%s %s %s\n", e.Family, index, name)
}

func eventNames() []string {
	names := []string{"TokenPaused", "TokenUnpaused", "TokenTransferred", "TransferMalformed"} // their names are those of many
	for _, emitter := range emitters {
		contract := ABI(emitter.abi)
		names = slices.AppendSeq(names, maps.Keys(contract.Events))
	}
	return names
}

// printCounts prints what the metrics have counted since.
func (h *harness) printCounts(t *testing.T, out *strings.Builder, before map[string]float64) {
	now := h.gather(t)
	for _, line := range slices.Sorted(maps.Keys(now)) {
		if n := now[line] - before[line]; n > 0 {
			fmt.Fprintf(out, "%s +%v\n", line, n)
		}
	}
}

func (h *harness) gather(t *testing.T) map[string]float64 {
	families, err := h.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), "lienstream_processors_")
		if !ok || name == "events_total" || name == "probes_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			line := []string{strings.TrimSuffix(name, "_total")}
			for _, l := range m.GetLabel() {
				line = append(line, strconv.Quote(l.GetValue()))
			}
			counts[strings.Join(line, " ")] = m.GetCounter().GetValue()
		}
	}
	return counts
}
