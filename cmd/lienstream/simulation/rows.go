package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// listed are the answers that list the entities of a topic, and the field of an item that names its entity.
var listed = map[string]struct {
	paths *regexp.Regexp
	name  string
}{
	topics.EntityDeal:  {regexp.MustCompile(`^/deals\?limit=200$`), "id"},
	topics.EntityBid:   {regexp.MustCompile(`^/deals/\d+/bids`), "id"},
	topics.EntityDrip:  {regexp.MustCompile(`^/rewards/0x[^/]+$`), "id"},
	topics.EntityAsset: {regexp.MustCompile(`^/assets\?limit=200$`), "token"},
	topics.EntityEpoch: {regexp.MustCompile(`^/epochs`), "n"},
	topics.EntityBurn:  {regexp.MustCompile(`^/burns`), "tx"},
}

// ofAnswers are fields that an answer has in another form, or as of its block's time.
var ofAnswers = []string{"uimultiplier", "priceusdgperstkn"}

// entitiesLike holds the entity topics against answers as of the block that both are of: each item of a list has a row, each
// row an item, and what both say is the same.
func (s *system) entitiesLike(ctx context.Context, answers map[string]reply) error {
	h, err := kafka.NewHistory(s.kafka())
	if err != nil {
		return err
	}
	defer h.Close()
	var errs []error
	for _, t := range s.cat.Topics() {
		entity := t.Entity
		of, is := listed[entity]
		if t.Kind != topics.KindEntity || !is {
			continue
		}
		rows, err := s.newest(ctx, h, t, of.name)
		if err != nil {
			return err
		}
		items := map[string]bool{}
		for path, r := range answers {
			if !of.paths.MatchString(path) {
				continue
			}
			var said any
			d := json.NewDecoder(strings.NewReader(r.body))
			if d.UseNumber(); d.Decode(&said) != nil {
				return fmt.Errorf("%s: %s", path, r.body)
			}
			for _, item := range itemsIn(said, of.name) {
				row := rows[text(item[of.name])]
				if row == nil {
					errs = append(errs, fmt.Errorf("ent.%s has no row of %s %v of %s", entity, of.name, item[of.name], path))
					continue
				}
				items[text(item[of.name])] = true
				same := 0
				for field, v := range item {
					has, is := row[field]
					if !is || has == nil || slices.Contains(ofAnswers, field) {
						continue
					}
					if same++; text(has) != text(v) {
						errs = append(errs, fmt.Errorf("ent.%s: %s %v has %s %v, %s says %v", entity, of.name, item[of.name], field, has, path, v))
					}
				}
				if same < 4 {
					errs = append(errs, fmt.Errorf("ent.%s and %s have %d fields in common", entity, path, same))
				}
			}
		}
		if n := len(items); n == 0 || n > len(rows) || n < min(len(rows), longestList) {
			errs = append(errs, fmt.Errorf("ent.%s has %d rows, and answers list %d", entity, len(rows), len(items)))
		}
	}
	return errors.Join(errs...)
}

// newest are the newest rows of a topic by one of their fields.
func (s *system) newest(ctx context.Context, h *kafka.History, t topics.Topic, name string) (map[string]map[string]any, error) {
	rows := map[string]map[string]any{}
	var failed error
	for p := range t.Partitions {
		seen := keys{} // after a reorg another partition may have an entity of that key
		err := h.ReadBack(ctx, t.Name(), p, 0, func(r *kafka.Record) bool {
			if !seen.newest(r) {
				return true
			}
			said, err := topics.Text(t.Kind, r.Value)
			if err != nil {
				failed = err
				return false
			}
			row := map[string]any{}
			for field, v := range said.(map[string]any)["value"].(map[string]any) {
				row[plain(field)] = v
			}
			if id, is := row[t.Entity+"id"]; is {
				row["id"] = id
			}
			rows[text(row[name])] = row
			return true
		})
		if err != nil || failed != nil {
			return nil, fmt.Errorf("%s: %w", t.Name(), errors.Join(err, failed))
		}
	}
	return rows, nil
}

// itemsIn are the objects with a field, at any depth, with plain names.
func itemsIn(said any, name string) (all []map[string]any) {
	switch said := said.(type) {
	case []any:
		for _, v := range said {
			all = append(all, itemsIn(v, name)...)
		}
	case map[string]any:
		item := map[string]any{}
		for field, v := range said {
			item[plain(field)] = v
			if nested, is := v.([]any); is {
				all = append(all, itemsIn(nested, name)...)
			}
		}
		if item[name] != nil {
			all = append(all, item)
		}
	}
	return all
}

// plain is a field's name as topics and answers both have it.
func plain(field string) string { return strings.ToLower(strings.ReplaceAll(field, "_", "")) }

func text(v any) string { return strings.ToLower(fmt.Sprint(v)) }
