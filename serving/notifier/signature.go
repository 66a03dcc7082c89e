package notifier

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/accounts"
	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// The codes of signature errors.
var (
	InvalidSignature = httpapi.Code{Name: "INVALID_SIGNATURE", Status: 401}
	SignatureExpired = httpapi.Code{Name: "SIGNATURE_EXPIRED", Status: 401}
	SignatureReused  = httpapi.Code{Name: "SIGNATURE_REUSED", Status: 401}
)

func fault(code httpapi.Code, format string, args ...any) error {
	return &httpapi.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalid(field, what string) error { return fault(httpapi.InvalidInput, "%q %s", field, what) }

// maxUnixDigits keeps a timestamp within 64 bits.
const maxUnixDigits = 18

// signedMessage is the content of a message besides its wallet and channel.
type signedMessage struct {
	address string
	unix    int64
}

// readMessage reads "<word> notify <wallet> <channel> <address> <unix>" of a wallet and channel. The wallet may be in
// lower case or with its checksum.
func readMessage(word, message string, wallet common.Address, channel string) (m signedMessage, err error) {
	for _, spelling := range []string{strings.ToLower(wallet.Hex()), wallet.Hex()} {
		rest, ok := strings.CutPrefix(message, word+" notify "+spelling+" "+channel+" ")
		at := strings.LastIndexByte(rest, ' ')
		if !ok || at < 0 {
			continue
		}
		unix, err := strconv.ParseInt(rest[at+1:], 10, 64)
		if err != nil || unix <= 0 || len(rest)-at-1 > maxUnixDigits || strconv.FormatInt(unix, 10) != rest[at+1:] {
			return m, invalid("message", "must end with a time in Unix seconds")
		}
		return signedMessage{rest[:at], unix}, nil
	}
	return m, anotherMessage(word)
}

// anotherMessage is the error for a message about something else than the request.
func anotherMessage(word string) error {
	return invalid("message", fmt.Sprintf("must be %q for this wallet, channel and address", word+" notify <wallet> <channel> <address> <unix>"))
}

// fresh returns an error for a message signed too long ago, or in the future.
func (s *Service) fresh(unix int64, now time.Time) error {
	age := now.Unix() - unix
	switch {
	case age > int64(s.cfg.MaxAge/time.Second):
		return fault(SignatureExpired, "the message was signed more than %s ago", s.cfg.MaxAge)
	case -age > int64(s.cfg.MaxAhead/time.Second):
		return fault(SignatureExpired, "the message is dated more than %s in the future", s.cfg.MaxAhead)
	}
	return nil
}

const (
	keySignatureBytes = 65
	maxSignatureBytes = 8 << 10

	// probeGas is enough to deploy a wallet and check a signature: each takes less than a million, even for a passkey
	// checked in Solidity. Without it each node would apply its own limit, and a contract could answer nodes
	// differently.
	probeGas = 5_000_000
)

// verify checks that a wallet signed a message as EIP-191 text: with its key, or as a contract, deployed
// (EIP-1271) or not (ERC-6492).
func (s *Service) verify(ctx context.Context, client netip.Addr, wallet common.Address, message string, signature []byte) error {
	hash := common.Hash(accounts.TextHash([]byte(message)))
	if signedByKey(wallet, hash, signature) {
		return nil
	}
	if client.IsValid() { // the client chooses the code that the chain's nodes run, before any signature is verified
		if !s.probes.take(ctx, client) {
			return &httpapi.Error{Code: httpapi.RateLimited, Message: "signatures of contract wallets are checked a few at a time", RetryAfter: time.Second}
		}
		defer s.probes.release(client)
	}
	signed, err := s.askWallet(ctx, wallet, hash, signature)
	if err != nil {
		s.log.Warn("could not check a contract wallet's signature")
		return &httpapi.Error{Code: httpapi.UpstreamUnavailable, Message: "the chain cannot verify the wallet's signature now, ask again shortly"}
	}
	if !signed {
		return fault(InvalidSignature, "the signature is not the wallet's signature of this message")
	}
	return nil
}

// signedByKey accepts r ‖ s ‖ v, with v 27 or 28 and the lower s, so that a signature has only one form.
func signedByKey(wallet common.Address, hash common.Hash, signature []byte) bool {
	if len(signature) != keySignatureBytes {
		return false
	}
	v := signature[64]
	r, sValue := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:64])
	if v != 27 && v != 28 || !crypto.ValidateSignatureValues(v-27, r, sValue, true) {
		return false
	}
	plain := append(append([]byte{}, signature[:64]...), v-27)
	public, err := crypto.SigToPub(hash[:], plain)
	return err == nil && crypto.PubkeyToAddress(*public) == wallet
}

// askWallet checks the signature with the wallet's contract, at the head. Where that is the quorum, two nodes must
// agree: one alone could accept a forged signature, or refuse a good one. An error means that the result is unknown.
func (s *Service) askWallet(ctx context.Context, wallet common.Address, hash common.Hash, signature []byte) (bool, error) {
	head, err := s.chain.Head()
	if err != nil {
		return false, err
	}
	code, err := probe(wallet, hash, signature)
	if err != nil {
		return false, err
	}
	return chain.Agreed(ctx, s.chain, func(ctx context.Context) (bool, error) {
		ctx = chain.WithOtherNode(ctx)
		signed, err := s.runProbe(ctx, code, head)
		if err != nil || s.chain.Quorum() < 2 {
			return signed, err
		}
		again, err := s.runProbe(ctx, code, head)
		if err == nil && again != signed {
			err = fmt.Errorf("a signature of %s: %w", wallet, chain.ErrDiffer)
		}
		return signed, err
	})
}

// runProbe runs a probe in one call, which deploys the wallet's contract if necessary.
func (s *Service) runProbe(ctx context.Context, code hexutil.Bytes, head chain.Block) (bool, error) {
	var said hexutil.Bytes
	call := &chain.Request{
		Method: "eth_call",
		Params: []any{map[string]any{"input": code, "gas": hexutil.Uint64(probeGas)}, rpc.BlockNumberOrHashWithHash(head.Hash, true)},
		Result: &said,
	}
	if err := s.chain.Batch(ctx, call); err != nil {
		return false, err
	}
	if _, reverted := errors.AsType[*chain.RevertError](call.Err); reverted {
		return false, nil // it is not a valid ERC-6492 wrapper
	}
	if call.Err != nil {
		return false, call.Err
	}
	return len(said) == 1 && said[0] == 1, nil
}

// probe is the creation code of a SignatureProbe.
func probe(wallet common.Address, hash common.Hash, signature []byte) (hexutil.Bytes, error) {
	code, err := contracts.Bytecode("SignatureProbe")
	if err != nil {
		return nil, err
	}
	var arguments abi.Arguments
	for _, name := range []string{"address", "bytes32", "bytes"} {
		kind, err := abi.NewType(name, "", nil)
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, abi.Argument{Type: kind})
	}
	packed, err := arguments.Pack(wallet, hash, signature)
	return append(code, packed...), err
}
