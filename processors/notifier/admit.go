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

// Admission counts a mail that asks for an address to be confirmed, for a wallet without a deal, or refuses it. All of
// them are applied at one partition, the gate's, which counts the mails to one domain and to all domains. So no number
// of nodes, wallets or mailboxes gets round these limits. They are low enough for one partition.
type Admission struct {
	ID     ID             `json:"id"`
	Wallet common.Address `json:"wallet"` // the asking wallet, for which the outcome is noted
	Domain common.Address `json:"domain"` // of Keys.Domain
	Most   int            `json:"most"`   // mails to a domain in an hour
}

// gate is the key of the count for all domains, in the form of a wallet's address. Its partition applies all
// Admissions.
var gate = common.Address{}

const (
	dailyAdmitted   = 5 // the limit of a day, as a multiple of that of an hour
	domainsAdmitted = 5 // the limit of all domains, as a multiple of that of one
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

// Domain is the keyed hash of the registered domain of an email address, in the form of a wallet's address. Subdomains
// count as the registered domain, whose owner can have any number of them.
func (k *Keys) Domain(email string) (of common.Address) {
	h := hmac.New(sha256.New, k.all[0].mac)
	fmt.Fprintf(h, "domain %s", registered(email))
	copy(of[:], h.Sum(nil))
	return of
}

// registered is the registered domain of an email address.
func registered(email string) string {
	bare, _ := mailbox(email)
	_, domain, _ := strings.Cut(bare, "@")
	if site, err := publicsuffix.EffectiveTLDPlusOne(domain); err == nil {
		return site
	}
	return domain
}
