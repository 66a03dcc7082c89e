package notifier

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"golang.org/x/net/publicsuffix"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// Admission counts a mail that is to ask for an address to be confirmed, for a wallet that may be anybody's, or refuses it. All of
// them are applied at one partition, the gate's: those to one domain, and those to all, are a count each, which no number of nodes,
// wallets or mailboxes gets round. What it admits is so little that a partition has no load of it.
type Admission struct {
	ID     ID             `json:"id"`
	Wallet common.Address `json:"wallet"` // that asks; the outcome is noted for it
	Domain common.Address `json:"domain"` // of Keys.Domain
	Most   int            `json:"most"`   // mails to a domain in an hour
}

// gate is where mails to all domains are counted, in the form of a wallet's address, and has them counted in its partition.
var gate = common.Address{}

const (
	dailyAdmitted   = 5 // times as many in a day as in an hour
	domainsAdmitted = 5 // times as many to all domains as to one
)

func admit(w state.Writer, at time.Time, c *Admission) error {
	free, err := takePermit(w, at, c.Domain, c.Most, dailyAdmitted*c.Most)
	if err == nil && free {
		if free, err = takePermit(w, at, gate, domainsAdmitted*c.Most, domainsAdmitted*dailyAdmitted*c.Most); err == nil && !free {
			err = givePermit(w, at.Unix(), c.Domain)
		}
	}
	if err != nil {
		return err
	}
	outcome := Accepted
	if !free {
		outcome = Limited
	}
	return note(w, at, c.Wallet, c.ID, outcome)
}

// Domain is whose mailboxes those of an email address's domain are: the keyed hash of what was registered, in the form of a wallet's
// address. Who has a domain has any number below it.
func (k *Keys) Domain(email string) (of common.Address) {
	h := hmac.New(sha256.New, k.all[0].mac)
	fmt.Fprintf(h, "domain %s", registered(email))
	copy(of[:], h.Sum(nil))
	return of
}

// registered is the domain of an email address that somebody has registered.
func registered(email string) string {
	bare, _ := mailbox(email)
	_, domain, _ := strings.Cut(bare, "@")
	if site, err := publicsuffix.EffectiveTLDPlusOne(domain); err == nil {
		return site
	}
	return domain
}
