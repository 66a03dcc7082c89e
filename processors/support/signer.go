package support

import (
	"crypto/ecdsa"
	"fmt"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/go-json-experiment/json"
)

// Staff is whose key is whose. Nil: nobody is named, and the audit says which key it was.
type Staff map[common.Address]string

// ParseStaff reads a file of a name and the address of its key a line. A person may have several keys.
func ParseStaff(text string) (Staff, error) {
	staff := Staff{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 || len(fields[0]) > maxNameBytes || !common.IsHexAddress(fields[1]) {
			return nil, fmt.Errorf("staff: %.80q is not a name and an address", strings.TrimSpace(line))
		}
		key := common.HexToAddress(fields[1])
		if staff[key] != "" {
			return nil, fmt.Errorf("staff: key %s is listed twice", key)
		}
		staff[key] = fields[0]
	}
	return staff, nil
}

// byStaff says whether only a member of staff does this.
func (c *Command) byStaff() bool {
	switch c.Kind {
	case Reply, Decide, Close, FloatTake:
		return true
	case RefundSent:
		return c.Return != nil
	default:
		return false
	}
}

// Sign makes the command one of a member of staff, for the wallet whose desk it goes to.
func (c *Command) Sign(wallet common.Address, name string, key *ecdsa.PrivateKey) error {
	if c.ID == "" {
		c.ID = NewID()
	}
	c.By = name
	digest, err := c.digest(wallet)
	if err != nil {
		return err
	}
	if c.Signature, err = crypto.Sign(digest[:], key); err != nil {
		return fmt.Errorf("sign %s: %w", c.Kind, err)
	}
	return nil
}

// digest is of the whole command, but for the signature itself.
func (c *Command) digest(wallet common.Address) (common.Hash, error) {
	bare := *c
	bare.Signature = nil
	text, err := json.Marshal(&bare)
	if err != nil {
		return common.Hash{}, fmt.Errorf("encode command: %w", err)
	}
	return crypto.Keccak256Hash([]byte("lienstream support staff"), wallet[:], text), nil
}

// signed is whose key signed, if it may act under the name that the command has.
func (s Staff) signed(c *Command, wallet common.Address) (common.Address, bool) {
	digest, err := c.digest(wallet)
	if err != nil {
		return common.Address{}, false
	}
	key, err := crypto.SigToPub(digest[:], c.Signature)
	if err != nil {
		return common.Address{}, false
	}
	address := crypto.PubkeyToAddress(*key)
	return address, s == nil || s[address] == c.By
}
