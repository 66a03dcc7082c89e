package simulation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// What the agent API prepared as of a block is what was then sent, and does what its simulation said: by the logs of the next
// block, whose first transaction it was.
func TestPreparedDoesWhatItsSimulationSaid(t *testing.T) {
	rec, o := judge(t)
	done := map[string]int{}
	for block, all := range o.sent {
		for _, q := range all {
			r, known := o.answers[block.Hex()][q.path]
			if !known || r.status != http.StatusOK {
				continue // a block later it was possible, and not yet then
			}
			var answer struct {
				Action      string
				Transaction struct{ To, Data string }
				Simulation  struct {
					Transfers []struct{ Kind, Token, From, To, AmountOrTokenID string }
				}
			}
			if err := json.Unmarshal([]byte(r.body), &answer); err != nil {
				t.Fatal(err)
			}
			if answer.Action == "withdrawCredit" && answer.Transaction.Data != q.data {
				continue // a part was withdrawn, and all is prepared
			}
			if answer.Transaction.Data != q.data || answer.Transaction.To != lower(rec.deployment.DealVault) {
				t.Errorf("block %s: %s: %s to %s, what was sent is %s", r.number, q.path, answer.Transaction.Data, answer.Transaction.To, q.data)
			}
			transfers := ""
			for _, f := range answer.Simulation.Transfers {
				transfers += fmt.Sprintln(f.Token, f.From, f.To, f.AmountOrTokenID)
			}
			if transfers != q.transfers {
				t.Errorf("block %s: %s: its simulation moved\n%sand it moved\n%s", r.number, q.path, transfers, q.transfers)
			}
			done[answer.Action]++
		}
	}
	if len(done) < 3 {
		t.Fatalf("too little was compared: %v", done)
	}
	t.Logf("prepared and sent: %v", done)
}
