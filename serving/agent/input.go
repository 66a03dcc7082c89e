package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"mime"
	"slices"
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/serving/httpapi"
)

// Input is a request to prepare a transaction. Only the fields of its action are set.
type Input struct {
	Action  string
	ChainID uint64
	Wallet  common.Address

	DealID, BidID *big.Int
	TermsHash     common.Hash
	Token         common.Address
	Amount        *big.Int
	Cap, MinPrice *big.Int
	Term          uint32
	ListingExpiry uint64
	Price         *big.Int
	Expiry        uint64
	Limit         *big.Int // maxPrice or spendLimit
}

// field decodes one field of a body. Its error says what the field must be, but never its value: callers may send
// secrets by mistake, which must reach neither a response nor a log. Nor does the name of a field that there is not.
type field func(raw json.RawMessage, in *Input) error

// fields of all actions, by name.
var fields = map[string]field{
	"action":        func(raw json.RawMessage, in *Input) error { return readText(raw, &in.Action) },
	"chainId":       func(raw json.RawMessage, in *Input) error { return readInteger(raw, 63, &in.ChainID) },
	"wallet":        func(raw json.RawMessage, in *Input) error { return readAddress(raw, &in.Wallet) },
	"dealId":        func(raw json.RawMessage, in *Input) error { return readAmount(raw, 256, &in.DealID) },
	"bidId":         func(raw json.RawMessage, in *Input) error { return readAmount(raw, 256, &in.BidID) },
	"termsHash":     func(raw json.RawMessage, in *Input) error { return readHash(raw, &in.TermsHash) },
	"token":         func(raw json.RawMessage, in *Input) error { return readAddress(raw, &in.Token) },
	"amount":        func(raw json.RawMessage, in *Input) error { return readAmount(raw, 256, &in.Amount) },
	"cap":           func(raw json.RawMessage, in *Input) error { return readAmount(raw, 128, &in.Cap) },
	"minPrice":      func(raw json.RawMessage, in *Input) error { return readAmount(raw, 128, &in.MinPrice) },
	"price":         func(raw json.RawMessage, in *Input) error { return readAmount(raw, 128, &in.Price) },
	"maxPrice":      func(raw json.RawMessage, in *Input) error { return readAmount(raw, 256, &in.Limit) },
	"spendLimit":    func(raw json.RawMessage, in *Input) error { return readAmount(raw, 256, &in.Limit) },
	"expiry":        func(raw json.RawMessage, in *Input) error { return readInteger(raw, 40, &in.Expiry) },
	"listingExpiry": func(raw json.RawMessage, in *Input) error { return readInteger(raw, 40, &in.ListingExpiry) },
	"term": func(raw json.RawMessage, in *Input) error {
		var term uint64
		err := readInteger(raw, 32, &term)
		in.Term = uint32(term)
		return err
	},
}

// readInput decodes a body: an object with exactly the fields of its action, each once.
func (a *Agent) readInput(req *httpapi.Request) (*Input, error) {
	body, err := req.Body() // its size is checked first
	if err != nil {
		return nil, err
	}
	media, params, err := mime.ParseMediaType(req.HTTP.Header.Get("Content-Type"))
	if charset := params["charset"]; err != nil || media != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return nil, invalid("the body must be application/json")
	}
	return parseInput(body, a.actions)
}

func parseInput(body []byte, actions map[string]*action) (*Input, error) {
	given, err := readObject(body)
	if err != nil {
		return nil, err
	}
	in := &Input{}
	if raw, ok := given["action"]; !ok || readText(raw, &in.Action) != nil || actions[in.Action] == nil {
		return nil, invalid(`"action" must be one of ` + strings.Join(actionNames(), ", "))
	}
	want := append([]string{"action", "chainId", "wallet"}, actions[in.Action].fields...)
	for name := range given {
		if !slices.Contains(want, name) {
			return nil, invalid("there is a field that the action " + in.Action + " has not: it has " + strings.Join(want, ", "))
		}
	}
	for _, name := range want {
		raw, ok := given[name]
		if !ok {
			return nil, invalid(strconv.Quote(name) + " is missing")
		}
		if err := fields[name](raw, in); err != nil {
			return nil, invalid(strconv.Quote(name) + " " + err.Error())
		}
	}
	if in.Wallet == (common.Address{}) {
		return nil, invalid(`"wallet" must not be the zero address`)
	}
	return in, nil
}

const maxFields = 32

// readObject decodes a single JSON object without duplicate names.
func readObject(body []byte) (map[string]json.RawMessage, error) {
	notObject := invalid("the body must be a JSON object")
	dec := json.NewDecoder(bytes.NewReader(body))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, notObject
	}
	given := map[string]json.RawMessage{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, notObject
		}
		name, ok := key.(string)
		var value json.RawMessage
		if !ok || dec.Decode(&value) != nil {
			return nil, notObject
		}
		if _, twice := given[name]; twice {
			if fields[name] == nil {
				return nil, invalid("a field is given twice")
			}
			return nil, invalid(strconv.Quote(name) + " is given twice")
		}
		given[name] = value
		if len(given) > maxFields {
			return nil, invalid("the body has too many fields")
		}
	}
	if end, err := dec.Token(); err != nil || end != json.Delim('}') {
		return nil, notObject
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("the body must be a single JSON object")
	}
	return given, nil
}

func readText(raw json.RawMessage, into *string) error {
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, into) != nil {
		return errors.New("must be a string")
	}
	return nil
}

// readInteger decodes a JSON integer of at most this many bits.
func readInteger(raw json.RawMessage, bits int, into *uint64) error {
	n, err := strconv.ParseUint(string(raw), 10, bits)
	if err != nil || len(raw) > 1 && raw[0] == '0' {
		return fmt.Errorf("must be an integer from 0 to 2^%d-1", bits)
	}
	*into = n
	return nil
}

// readAmount decodes a decimal string of at most this many bits.
func readAmount(raw json.RawMessage, bits int, into **big.Int) error {
	fault := fmt.Errorf("must be a decimal string of at most %d bits, without sign, point or leading zeros", bits)
	var text string
	if readText(raw, &text) != nil || text == "" || len(text) > 78 || len(text) > 1 && text[0] == '0' || strings.Trim(text, "0123456789") != "" {
		return fault
	}
	n, ok := new(big.Int).SetString(text, 10)
	if !ok || n.BitLen() > bits {
		return fault
	}
	*into = n
	return nil
}

func readAddress(raw json.RawMessage, into *common.Address) error {
	var text string
	if readText(raw, &text) != nil || len(text) != 42 || text[:2] != "0x" || !isHex(text[2:]) {
		return errors.New("must be an address: 0x and 40 hex digits")
	}
	address := common.HexToAddress(text)
	if digits := text[2:]; digits != strings.ToLower(digits) && digits != strings.ToUpper(digits) && address.Hex() != text {
		return errors.New("must be an address: its EIP-55 checksum is wrong")
	}
	*into = address
	return nil
}

func readHash(raw json.RawMessage, into *common.Hash) error {
	var text string
	if readText(raw, &text) != nil || len(text) != 66 || text[:2] != "0x" || !isHex(text[2:]) {
		return errors.New("must be 0x and 64 hex digits")
	}
	*into = common.HexToHash(text)
	return nil
}

func isHex(text string) bool { return strings.Trim(text, "0123456789abcdefABCDEF") == "" }
