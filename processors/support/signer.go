package support

import (
	"crypto/ecdsa"
	"fmt"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/go-json-experiment/json"
)

// Roster maps the staff's keys to names. Nil: any key is accepted, and the audit log names it.
type Roster map[common.Address]string

// ParseRoster parses lines with a name and the address of a key. A person may have several keys.
func ParseRoster(text string) (Roster, error) {
	staff := Roster{}
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

// byStaff reports whether only staff may send this command.
func (c *Command) byStaff() bool {
	switch c.Kind {
	case Reply, Decide, Close, FloatTake, RefundByHand, RefundNotSent:
		return true
	case RefundSent:
		return c.Return != nil
	default:
		return false
	}
}

// Sign signs the command as a staff member, for the wallet whose desk it goes to.
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

// digest is the hash of the command without the signature.
func (c *Command) digest(wallet common.Address) (common.Hash, error) {
	bare := *c
	bare.Signature = nil
	text, err := json.Marshal(&bare)
	if err != nil {
		return common.Hash{}, fmt.Errorf("encode command: %w", err)
	}
	return crypto.Keccak256Hash([]byte("lienstream support staff"), wallet[:], text), nil
}

// signed returns the signer's address if it may act under the command's name.
func (s Roster) signed(c *Command, wallet common.Address) (common.Address, bool) {
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
