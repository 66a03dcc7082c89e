package topics

import (
	"encoding/binary"
	"fmt"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
)

// Rows are a version byte and the fields in the order of the structs: numbers as varints, 256-bit numbers
// as a length and their significant bytes, what may be absent behind a presence byte.
const rowVersion = 1

func appendWord(b []byte, v *uint256.Int) []byte {
	n := v.ByteLen()
	word := v.Bytes32()
	return append(append(b, byte(n)), word[32-n:]...)
}

func (in *input) word() (v uint256.Int) {
	n := in.byte()
	if n > 32 {
		in.bad = true
	}
	s := in.take(int(n))
	if len(s) > 0 && s[0] == 0 { // one number, one form
		in.bad = true
	}
	v.SetBytes(s)
	return v
}

func appendOptWord(b []byte, v *uint256.Int) []byte {
	if v == nil {
		return append(b, 0)
	}
	return appendWord(append(b, 1), v)
}

func (in *input) optWord() *uint256.Int {
	if !in.bool() {
		return nil
	}
	v := in.word()
	return &v
}

func appendVarint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func (in *input) varint() uint64 {
	v, n := binary.Uvarint(in.b)
	if n <= 0 || in.bad {
		in.bad = true
		return 0
	}
	in.b = in.b[n:]
	return v
}

// bounded reads a varint that must not exceed limit.
func (in *input) bounded(limit uint64) uint64 {
	v := in.varint()
	if v > limit {
		in.bad = true
		return 0
	}
	return v
}

func openRow(what string, data []byte) (input, error) {
	if len(data) == 0 {
		return input{}, fmt.Errorf("%s: %w: empty", what, ErrMalformed)
	}
	if data[0] != rowVersion {
		return input{}, fmt.Errorf("%s: %w: %d", what, ErrUnknownVersion, data[0])
	}
	return input{b: data[1:]}, nil
}

func (in *input) closeRow(what string) error {
	if err := in.end(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// AppendBinary appends the row. The error is always nil.
func (d *Deal) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, rowVersion)
	b = appendWord(b, &d.ID)
	b = append(b, d.Borrower[:]...)
	b = append(b, byte(d.Kind), byte(d.Lane), byte(d.State))
	b = append(b, d.Token[:]...)
	b = appendWord(b, &d.AmountOrTokenID)
	b = appendWord(b, &d.Cap)
	b = appendWord(b, &d.MinPrice)
	b = appendVarint(b, uint64(d.Term))
	b = appendVarint(b, uint64(d.FeeBps))
	b = appendVarint(b, d.ListingExpiry)
	b = appendVarint(b, d.ListedAt)
	b = append(b, d.TermsHash[:]...)
	b = append(b, d.TxListed[:]...)
	b = appendBool(b, d.Funding != nil)
	if f := d.Funding; f != nil {
		b = append(b, f.Lender[:]...)
		b = appendWord(b, &f.Price)
		b = appendWord(b, &f.Fee)
		b = appendVarint(b, f.FundedAt)
		b = appendVarint(b, f.Expiry)
		b = appendVarint(b, f.GraceEnd)
		b = append(b, f.Tx[:]...)
	}
	b = append(b, d.TxSettled[:]...)
	return appendVarint(b, uint64(d.OpenBids)), nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (d *Deal) UnmarshalBinary(data []byte) error {
	in, err := openRow("deal", data)
	if err != nil {
		return err
	}
	*d = Deal{
		ID: in.word(), Borrower: in.address(),
		Kind: contracts.Kind(in.byte()), Lane: contracts.Lane(in.byte()), State: contracts.DealState(in.byte()),
		Token: in.address(), AmountOrTokenID: in.word(), Cap: in.word(), MinPrice: in.word(),
		Term: uint32(in.bounded(1<<32 - 1)), FeeBps: uint16(in.bounded(1<<16 - 1)), ListingExpiry: in.varint(), ListedAt: in.varint(),
		TermsHash: in.hash(), TxListed: in.hash(),
	}
	if in.bool() {
		d.Funding = &Funding{
			Lender: in.address(), Price: in.word(), Fee: in.word(),
			FundedAt: in.varint(), Expiry: in.varint(), GraceEnd: in.varint(), Tx: in.hash(),
		}
	}
	d.TxSettled = in.hash()
	d.OpenBids = uint32(in.bounded(1<<32 - 1))
	return in.closeRow("deal")
}

// AppendBinary appends the row. The error is always nil.
func (r *Bid) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, rowVersion)
	b = appendWord(b, &r.ID)
	b = appendWord(b, &r.DealID)
	b = append(b, r.Lender[:]...)
	b = appendWord(b, &r.Price)
	b = appendVarint(b, r.Expiry)
	b = appendVarint(b, r.PlacedAt)
	b = append(b, byte(r.State))
	b = append(b, r.TermsHash[:]...)
	return append(b, r.Tx[:]...), nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (r *Bid) UnmarshalBinary(data []byte) error {
	in, err := openRow("bid", data)
	if err != nil {
		return err
	}
	*r = Bid{
		ID: in.word(), DealID: in.word(), Lender: in.address(), Price: in.word(),
		Expiry: in.varint(), PlacedAt: in.varint(), State: contracts.BidState(in.byte()), TermsHash: in.hash(), Tx: in.hash(),
	}
	return in.closeRow("bid")
}

// AppendBinary appends the row. The error is always nil.
func (r *Balance) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, rowVersion)
	b = append(b, r.Account[:]...)
	b = append(b, r.Asset[:]...)
	b = append(b, byte(r.Kind))
	return appendWord(b, &r.Amount), nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (r *Balance) UnmarshalBinary(data []byte) error {
	in, err := openRow("balance", data)
	if err != nil {
		return err
	}
	*r = Balance{Account: in.address(), Asset: in.address(), Kind: contracts.BalanceKind(in.byte()), Amount: in.word()}
	return in.closeRow("balance")
}

// AppendBinary appends the row. The error is always nil.
func (r *Asset) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, rowVersion)
	b = append(b, r.Token[:]...)
	b = appendString(b, r.Symbol)
	b = appendString(b, r.Name)
	b = append(b, r.Decimals, byte(r.Kind), byte(r.Lane))
	b = appendBool(b, r.Allowed)
	b = appendWord(b, &r.MinAmount)
	b = appendWord(b, &r.MaxDealRaw)
	b = appendWord(b, &r.MaxOpenRaw)
	b = appendWord(b, &r.OpenRaw)
	b = appendOptWord(b, r.UIMultiplier)
	b = appendOptWord(b, r.NewUIMultiplier)
	b = appendOptUint(b, r.EffectiveAt)
	return appendOptBool(b, r.Paused), nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (r *Asset) UnmarshalBinary(data []byte) error {
	in, err := openRow("asset", data)
	if err != nil {
		return err
	}
	*r = Asset{
		Token: in.address(), Symbol: string(in.bytes()), Name: string(in.bytes()),
		Decimals: in.byte(), Kind: contracts.Kind(in.byte()), Lane: contracts.Lane(in.byte()), Allowed: in.bool(),
		MinAmount: in.word(), MaxDealRaw: in.word(), MaxOpenRaw: in.word(), OpenRaw: in.word(),
		UIMultiplier: in.optWord(), NewUIMultiplier: in.optWord(), EffectiveAt: in.optUint(), Paused: in.optBool(),
	}
	return in.closeRow("asset")
}
