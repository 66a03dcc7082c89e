package simulation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// ofTheNode are the endpoints about the node instead of the chain.
var ofTheNode = []string{"/stream", "/pipeline", "/health/indexer"}

// Three processor nodes and two serving nodes answer like one of each: every endpoint, every entity, every page and its
// cursor, byte for byte as of one block.
func TestManyNodesAnswerLikeOne(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	rec, err := world()
	if err != nil {
		t.Fatal(err)
	}
	e := entitiesOf(rec)
	one := answersOf(t, rec, e, names("processor", 1), names("serving", 1))["serving0"]
	apart := 0
	for id, parties := range e.parties {
		if len(parties) > 1 && onPartitionsApart(t, id, parties) && strings.Count(one["/deals/"+id].body, `"unlockedNow"`) > 1 {
			apart++
		}
	}
	if apart == 0 {
		t.Fatal("no rewarded deal has both of its parties on other partitions than its own: the scenario compares too little")
	}
	days := len(regexp.MustCompile(`"tvl":\{"usdg":"[1-9]`).FindAllString(one["/stats/history"].body, -1))
	if days < 2 {
		t.Fatalf("something was locked on %d days: the scenario does not compare the past", days)
	}
	many := answersOf(t, rec, e, names("processor", 3), names("serving", 2))
	for host, answers := range many {
		for path, want := range one {
			if got, asked := answers[path]; !asked {
				t.Errorf("%s: no page led to %s", host, path)
			} else if got != want {
				t.Errorf("%s, GET %s: %d at block %s, want %d at %s: %s", host, path, got.status, got.number, want.status, want.number, difference(want.body, got.body))
			}
		}
		if len(answers) != len(one) {
			t.Errorf("%s: %d answers, one node gives %d", host, len(answers), len(one))
		}
	}
	t.Logf("%d answers of each serving node, %d rewarded deals with parties on other partitions, %d days with collateral", len(one), apart, days)
}

// answersOf asks each serving node of a system everything as of the recording's last block.
func answersOf(t *testing.T, rec *recording, e *entities, processors, servings []string) map[string]map[string]reply {
	t.Helper()
	all := map[string]map[string]reply{}
	inBubble(t, func(t *testing.T) {
		s, err := newSystem(t.Context(), rec, 1, size{1, manyPartitions}, &story{})
		if err != nil {
			t.Fatal(err)
		}
		for s.chain.step() {
		}
		for _, host := range append(append([]string{"ingester0"}, processors...), servings...) {
			if err := s.start(t.Context(), host); err != nil {
				t.Fatal(err)
			}
		}
		for _, host := range servings {
			s.eachOwns(t, host, len(processors))
			if err := s.settle(t.Context(), host, time.Minute); err != nil {
				t.Fatal(err)
			}
			all[host] = s.walk(t, host, e)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	})
	return all
}

// eachOwns waits until so many nodes own partitions, as a serving node sees it.
func (s *system) eachOwns(t *testing.T, host string, nodes int) {
	t.Helper()
	owner := regexp.MustCompile(`"owner":"([^"]+)"`)
	polltest.Within(t, time.Minute, func() error {
		r, err := s.get(t.Context(), host, "/pipeline")
		if err != nil {
			return err
		}
		owners := map[string]bool{}
		for _, m := range owner.FindAllStringSubmatch(r.body, -1) {
			owners[m[1]] = true
		}
		if len(owners) != nodes {
			return fmt.Errorf("not %d nodes own partitions: %s", nodes, r.body)
		}
		return nil
	})
}

// walk asks a serving node everything, lists page by page, and requires that no endpoint is left out.
func (s *system) walk(t *testing.T, host string, e *entities) map[string]reply {
	t.Helper()
	const perPage = "limit=3"
	paths := e.paths()
	for _, list := range e.lists() {
		joint := "?"
		if strings.Contains(list, "?") {
			joint = "&"
		}
		if one := regexp.MustCompile("^/(deals|portfolio|rewards)/[^/]+$"); one.MatchString(list) {
			paths = append(paths, list)
		} else {
			paths = append(paths, list+joint+perPage)
		}
	}
	answers := map[string]reply{}
	for _, path := range paths {
		for path != "" {
			r, err := s.get(t.Context(), host, path)
			if err != nil {
				t.Fatalf("GET %s of %s: %v", path, host, err)
			}
			if r.status != http.StatusOK && r.status != http.StatusNotFound {
				t.Fatalf("GET %s of %s: %d: %s", path, host, r.status, r.body)
			}
			answers[path] = r
			if path, err = nextPage(path, r.body); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.requireAll(t, host, answers)
	return answers
}

// requireAll fails where the service has an endpoint that no path asked, or that never answered with 200.
func (s *system) requireAll(t *testing.T, host string, answers map[string]reply) {
	t.Helper()
	r, err := s.get(t.Context(), host, "/")
	if err != nil {
		t.Fatal(err)
	}
	var index struct{ Endpoints []string }
	if err := json.Unmarshal([]byte(r.body), &index); err != nil {
		t.Fatal(err)
	}
	parameter := regexp.MustCompile(`\\\{[a-z]+\\\}`)
	for _, endpoint := range index.Endpoints {
		form := regexp.MustCompile("^" + parameter.ReplaceAllString(regexp.QuoteMeta(endpoint), "[^/?]+") + `(\?|$)`)
		answered := false
		for path, r := range answers {
			answered = answered || r.status == http.StatusOK && form.MatchString(path)
		}
		for _, own := range ofTheNode {
			answered = answered || own == endpoint
		}
		if !answered {
			t.Errorf("%s is not compared", endpoint)
		}
	}
}

// onPartitionsApart says that neither party of a deal has its account on the deal's partition.
func onPartitionsApart(t *testing.T, id string, parties []common.Address) bool {
	t.Helper()
	n, err := uint256.FromDecimal(id)
	if err != nil {
		t.Fatal(err)
	}
	partition := func(e contracts.Entity) int32 { return topics.Partition(e.Key(), manyPartitions) }
	own := partition(contracts.DealEntity(n))
	for _, p := range parties {
		if partition(contracts.AccountEntity(p)) == own {
			return false
		}
	}
	return true
}
