package deals

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/topics"
)

// bidSums sums up the open bids of a deal on the same terms, so that a list of deals reads one or a few rows
// per deal, however many bids it has. The number of bids and the best one depend on the time, because bids
// expire without an event. So the rows are nodes of a B+ tree ordered by expiry; an inner node has the count
// and the best bid of each child.
//
// Invariants:
//  1. the leaves hold each OPEN bid once, under the terms that it was made on, by expiry and ID;
//  2. an inner entry's key is at or before all bids of its child, and after all bids of the previous child;
//     count and best are the child's;
//  3. no node except the root is empty or has more than maxEntries; an empty root has no row.
//
// Nodes are not merged: a shrinking tree keeps its height, but has no empty nodes.
var bidSums = &state.Table{ID: tableBidSums, Name: "bid sums"}

const maxEntries = 32

// BidSum sums up the open bids of a deal on its terms at a time.
type BidSum struct {
	Count uint64       // unexpired bids
	Best  *uint256.Int // the ID of the highest one, the earliest on a tie; nil: none
	Open  uint64       // all open bids, expired or not

	From, Until uint64 // the sum is valid at times from From on and before Until
}

// SumBids sums up the open bids of a deal on these terms at a time.
func SumBids(r rows, deal []byte, terms common.Hash, now uint64) (BidSum, error) {
	t := bidTree{r: r, key: treeKey(deal, terms)}
	s := BidSum{Until: math.MaxUint64}
	var best *bidEntry
	for number, root := uint32(0), true; ; root = false {
		n, err := t.load(number)
		if err != nil {
			return s, err
		}
		alive := len(n.entries)
		for i := range n.entries {
			e := &n.entries[i]
			if root {
				s.Open += e.count
			}
			if rules.BidExpired(e.key.expiry, now) {
				continue
			}
			alive = min(alive, i)
			s.Count += e.count
			if best == nil || e.betterThan(best) {
				best = e
			}
		}
		if alive < len(n.entries) {
			s.Until = min(s.Until, n.entries[alive].key.expiry)
		}
		if alive > 0 {
			s.From = max(s.From, n.entries[alive-1].key.expiry)
		}
		if !n.inner || alive == 0 { // unexpired bids may also be in the child that begins before now
			break
		}
		number = n.entries[alive-1].child
	}
	if best != nil {
		s.Best = best.best.Clone()
	}
	return s, nil
}

// OpenBids returns the IDs of the open bids of a deal on these terms, by expiry.
func OpenBids(r rows, deal []byte, terms common.Hash) ([]uint256.Int, error) {
	t := bidTree{r: r, key: treeKey(deal, terms)}
	var ids []uint256.Int
	var walk func(number uint32) error
	walk = func(number uint32) error {
		n, err := t.load(number)
		for i := range n.entries {
			switch {
			case err != nil:
			case n.inner:
				err = walk(n.entries[i].child)
			default:
				ids = append(ids, n.entries[i].key.id)
			}
		}
		return err
	}
	return ids, walk(0)
}

// rows reads rows: from a view, or from the overlay.
type rows interface {
	Get(t *state.Table, key []byte) ([]byte, error)
}

func treeKey(deal []byte, terms common.Hash) []byte {
	key := make([]byte, len(deal)+len(terms)+numberBytes)
	copy(key[copy(key, deal):], terms[:])
	return key
}

func treeOf(w state.Writer, deal []byte, terms common.Hash) bidTree {
	return bidTree{r: w, w: w, key: treeKey(deal, terms)}
}

// addBid adds an open bid to the deal with a key. only: the deal has no other one, so there is no row to look for.
func addBid(w state.Writer, deal []byte, b *topics.Bid, only bool) error {
	t := treeOf(w, deal, b.TermsHash)
	root := t.empty()
	if !only {
		var err error
		if root, err = t.load(0); err != nil {
			return err
		}
	}
	e := bidEntry{key: bidKey{b.Expiry, b.ID}, price: b.Price, best: b.ID, count: 1}
	if err := t.insert(root, &e); err != nil {
		return err
	}
	if len(root.entries) > maxEntries {
		right := root.split()
		top := &bidNode{inner: true, entries: []bidEntry{t.keep(root), t.keep(right)}}
		root = top
	}
	t.put(0, root)
	return nil
}

// removeBid removes a bid of the deal with a key.
func removeBid(w state.Writer, deal []byte, b *topics.Bid) error {
	t := treeOf(w, deal, b.TermsHash)
	root, err := t.load(0)
	if err != nil {
		return err
	}
	found, err := t.remove(root, &bidKey{b.Expiry, b.ID})
	if err == nil && !found {
		err = fmt.Errorf("open bid %s of deal %s is missing from the bid sums", b.ID.Dec(), b.DealID.Dec())
	}
	if err != nil {
		return err
	}
	t.put(0, root)
	return nil
}

// bidTree is the tree of a deal and terms.
type bidTree struct {
	r    rows
	w    state.Writer
	key  []byte // of a node: the deal's, the terms, the node's number
	next uint32 // number of the next node
}

const numberBytes = 4

type bidNode struct {
	inner   bool
	entries []bidEntry
}

// bidEntry is a bid, or a child and its sum.
type bidEntry struct {
	key   bidKey
	price uint256.Int // of the best bid
	best  uint256.Int // its ID
	count uint64
	child uint32
}

type bidKey struct {
	expiry uint64
	id     uint256.Int
}

func (k *bidKey) compare(l *bidKey) int {
	return cmp.Or(cmp.Compare(k.expiry, l.expiry), k.id.Cmp(&l.id))
}

func (e *bidEntry) betterThan(f *bidEntry) bool {
	return cmp.Or(e.price.Cmp(&f.price), f.best.Cmp(&e.best)) > 0
}

// behind is the index of the first entry after a key.
func (n *bidNode) behind(k *bidKey) int {
	i, found := slices.BinarySearchFunc(n.entries, k, func(e bidEntry, k *bidKey) int { return e.key.compare(k) })
	if found {
		i++
	}
	return i
}

// sum makes the entry of a child.
func (n *bidNode) sum(number uint32, key bidKey) bidEntry {
	e := bidEntry{key: key, child: number}
	for i := range n.entries {
		own := &n.entries[i]
		if e.count == 0 || own.betterThan(&e) {
			e.price, e.best = own.price, own.best
		}
		e.count += own.count
	}
	return e
}

// split moves the upper half to a new node.
func (n *bidNode) split() *bidNode {
	half := len(n.entries) / 2
	right := &bidNode{inner: n.inner, entries: slices.Clone(n.entries[half:])}
	n.entries = n.entries[:half]
	return right
}

// keep writes a new node.
func (t *bidTree) keep(n *bidNode) bidEntry {
	number := t.next
	t.next++
	t.put(number, n)
	return n.sum(number, n.entries[0].key)
}

// insert adds a bid below a node; the caller writes the node.
func (t *bidTree) insert(n *bidNode, e *bidEntry) error {
	i := n.behind(&e.key)
	if !n.inner {
		n.entries = slices.Insert(n.entries, i, *e)
		return nil
	}
	i = max(i-1, 0)
	at := n.entries[i]
	child, err := t.load(at.child)
	if err != nil {
		return err
	}
	if err := t.insert(child, e); err != nil {
		return err
	}
	if e.key.compare(&at.key) < 0 {
		at.key = e.key
	}
	var right *bidNode
	if len(child.entries) > maxEntries {
		right = child.split()
	}
	t.put(at.child, child)
	n.entries[i] = child.sum(at.child, at.key)
	if right != nil {
		n.entries = slices.Insert(n.entries, i+1, t.keep(right))
	}
	return nil
}

// remove removes a bid below a node; the caller writes the node.
func (t *bidTree) remove(n *bidNode, k *bidKey) (found bool, err error) {
	i := n.behind(k) - 1
	if i < 0 {
		return false, nil
	}
	at := n.entries[i]
	if !n.inner {
		if found = at.key.compare(k) == 0; found {
			n.entries = slices.Delete(n.entries, i, i+1)
		}
		return found, nil
	}
	child, err := t.load(at.child)
	if err != nil {
		return false, err
	}
	if found, err = t.remove(child, k); err != nil || !found {
		return found, err
	}
	t.put(at.child, child)
	if len(child.entries) == 0 {
		n.entries = slices.Delete(n.entries, i, i+1)
	} else {
		n.entries[i] = child.sum(at.child, at.key)
	}
	return true, nil
}

// of is the key of a node, valid until the next call.
func (t *bidTree) of(number uint32) []byte {
	binary.BigEndian.PutUint32(t.key[len(t.key)-numberBytes:], number)
	return t.key
}

// load reads a node; a missing root is an empty leaf.
func (t *bidTree) load(number uint32) (*bidNode, error) {
	row, err := t.r.Get(bidSums, t.of(number))
	if err == nil && row == nil && number == 0 {
		return t.empty(), nil
	}
	var n *bidNode
	if err == nil {
		var next uint32
		if n, next, err = decodeBidNode(row); number == 0 {
			t.next = next
		}
	}
	if err != nil {
		return &bidNode{}, fmt.Errorf("bid sums of deal %s: %w", ID(t.key[:idBytes]).Dec(), err)
	}
	return n, nil
}

// empty is the root of a tree without a bid.
func (t *bidTree) empty() *bidNode {
	t.next = 1
	return &bidNode{}
}

// put writes a node, or deletes an empty one. The root has the number of the next node, so it is written last.
func (t *bidTree) put(number uint32, n *bidNode) {
	if len(n.entries) == 0 {
		t.w.Delete(bidSums, t.of(number))
		return
	}
	var buf [rowBytes]byte
	t.w.Put(bidSums, t.of(number), slices.Clone(n.append(buf[:0], t.next)))
}

// A node is its kind, the number of the next node, and its entries: numbers as varints, words as a length and
// their significant bytes.
const (
	kindLeaf  = 1
	kindInner = 2
)
