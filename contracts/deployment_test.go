package contracts

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
)

// marketJSON is a valid deployment without the token layer, one key a line.
const marketJSON = `{
  "chainId": 4663,
  "startBlock": 0,
  "dealVault": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
  "assetRegistry": "0xfb6916095ca1df60bb79ce92ce3ea74c37c5d359",
  "usdg": "0xDBF03B407C01E7CD3CBEA99509D93F8DDDC8C6FB",
  "poolManager": "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
  "positionManager": "0x0000000000000000000000000000000000000005",
  "stateView": "0x0000000000000000000000000000000000000006",
  "v4Quoter": "0x0000000000000000000000000000000000000007"
}`

// TestReadDeployment spoils a valid file in each way and names the faults that must be reported, all of them.
func TestReadDeployment(t *testing.T) {
	replace := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(marketJSON) }
	with := func(lines string) string { return replace(`"chainId"`, lines+`, "chainId"`) }
	for _, test := range []struct {
		name, file string
		want       []string // the faults, in order; none: valid
	}{
		{"valid", marketJSON, nil},
		{"missing keys", `{}`, []string{
			"startBlock: missing", "chainId: missing", "dealVault: missing", "assetRegistry: missing", "usdg: missing",
			"poolManager: missing", "positionManager: missing", "stateView: missing", "v4Quoter: missing",
		}},
		{"several faults", replace(`4663`, `"4663"`, `d359`, `d35`, `9aDb`, `9aDB`, `000007`, `000006`), []string{
			`chainId: "4663" is not a 64-bit unsigned integer`,
			`assetRegistry: "0xfb6916095ca1df60bb79ce92ce3ea74c37c5d35"`,
			`poolManager: 0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDB has a wrong checksum (EIP-55)`,
			"v4Quoter: the same address as stateView",
		}},
		{"chain 0", replace(`4663`, `0`), []string{"chainId: zero"}},
		{"negative block", replace(`"startBlock": 0`, `"startBlock": -1`), []string{"startBlock: -1 is not"}},
		{"fraction", replace(`4663`, `4663.0`), []string{"chainId: 4663.0 is not"}},
		{"null address", replace(`"0x0000000000000000000000000000000000000005"`, `null`), []string{`positionManager: null is not a string`}},
		{"zero address", replace(`000005"`, `000000"`), []string{"positionManager: zero"}},
		{"no prefix", replace(`0xDBF0`, `00DBF0`), []string{`usdg: "00DBF0`}},
		{"unknown keys", with(`"zzz": 1, "dealvault": "0x01"`), []string{"dealvault: unknown key", "zzz: unknown key"}},
		{"twice", with(`"usdg": "0x0000000000000000000000000000000000000009"`), []string{"usdg: given twice"}},
		{"half a token layer", with(`"burner": "0x000000000000000000000000000000000000000b"`), []string{
			"epochController: missing", "rewardDistributor: missing", "liquidityStaking: missing",
			"tkn: missing", "stkn: missing", "poolId: missing",
		}},
		{"a pool alone, malformed", with(`"poolId": "0x01"`), []string{
			`poolId: "0x01" is not 0x and 64 hex digits`, "epochController: missing", "rewardDistributor: missing",
			"liquidityStaking: missing", "burner: missing", "tkn: missing", "stkn: missing",
		}},
		{"more after it", marketJSON + "{}", []string{"not a JSON object: something follows it"}},
		{"a list", `[]`, []string{"not a JSON object: it begins with ["}},
		{"cut off", marketJSON[:100], []string{"not a JSON object: "}},
		{"empty", ``, []string{"not a JSON object: EOF"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ReadDeployment(strings.NewReader(test.file))
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(test.want) {
				t.Fatalf("faults:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			for i := range got {
				if !strings.HasPrefix(got[i], test.want[i]) {
					t.Errorf("fault %q, want %q", got[i], test.want[i])
				}
			}
		})
	}
}

func TestDeploymentRoundTrip(t *testing.T) {
	bare := testDeployment()
	for _, field := range bare.tokenLayer() {
		*field.address = common.Address{}
	}
	bare.PoolID = common.Hash{}
	for _, d := range []Deployment{testDeployment(), bare} {
		var b bytes.Buffer
		if err := d.Write(&b); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "4663.json")
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := loadDeployment(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, got); diff != "" {
			t.Error(diff)
		}
		if got.HasTokenLayer() == (got.PoolID == common.Hash{}) {
			t.Errorf("token layer: %t with pool %s", got.HasTokenLayer(), got.PoolID)
		}
	}
	if err := (Deployment{}).Write(&bytes.Buffer{}); err == nil {
		t.Error("an empty deployment was written")
	}
}

func TestLoadDeploymentOfAnotherChain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1.json")
	if err := os.WriteFile(path, []byte(marketJSON), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := loadDeployment(path)
	if err == nil || !strings.Contains(err.Error(), "chainId: 4663 in a file named after chain 1") {
		t.Errorf("error %v", err)
	}
	if _, err := loadDeployment(filepath.Join(t.TempDir(), "2.json")); err == nil {
		t.Error("a missing file was loaded")
	}
}

func FuzzReadDeployment(f *testing.F) {
	f.Add([]byte(marketJSON))
	var full bytes.Buffer
	if err := testDeployment().Write(&full); err != nil {
		f.Fatal(err)
	}
	f.Add(full.Bytes())
	f.Add([]byte(`{"poolId":"0x00","chainId":1e3}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		d, err := ReadDeployment(bytes.NewReader(file))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := d.Write(&b); err != nil {
			t.Fatalf("valid when read, not when written: %v", err)
		}
		again, err := ReadDeployment(&b)
		if err != nil || again != d {
			t.Fatalf("%+v became %+v (%v)", d, again, err)
		}
	})
}

// loadDeployment reads a file as the program does.
func loadDeployment(path string) (Deployment, error) {
	file, err := os.Open(path)
	if err != nil {
		return Deployment{}, err
	}
	defer func() { _ = file.Close() }()
	return ReadDeploymentFile(path, file)
}
