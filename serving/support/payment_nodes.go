package support

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/ethclient"
	ethrpc "github.com/ethereum/go-ethereum/rpc"

	"github.com/lienstream/lienstream/contracts/nodetext"
)

// paymentTimeout bounds a request to a node of the payment chain.
const paymentTimeout = 10 * time.Second

const maxPaymentAnswer = 32 << 20

var errPaymentNodes = errors.New("no endpoint of the payment chain answers")

// paymentNodes sends requests to one node of the payment chain until it fails, then to the next. Each node's chain ID
// is checked first: logs of another chain would be mistaken for payments.
type paymentNodes struct {
	endpoints []*url.URL
	chainID   uint64
	client    *http.Client

	mu      sync.Mutex
	current int
	proven  []bool
}

// RoundTrip implements http.RoundTripper. Its errors name no endpoint, since a URL may contain a key.
func (n *paymentNodes) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	n.mu.Lock()
	first := n.current
	n.mu.Unlock()
	var failed error
	for i := range n.endpoints {
		at := (first + i) % len(n.endpoints)
		res, err := n.ask(req, at, body)
		if err == nil {
			n.mu.Lock()
			n.current = at
			n.mu.Unlock()
			return res, nil
		}
		if req.Context().Err() != nil {
			return nil, context.Cause(req.Context())
		}
		if failed == nil || errors.Is(err, errLimited) { // its message is the better one
			failed = err
		}
	}
	return nil, failed
}

func (n *paymentNodes) ask(req *http.Request, at int, body []byte) (*http.Response, error) {
	n.mu.Lock()
	proven := n.proven[at]
	n.mu.Unlock()
	if !proven {
		res, err := n.post(req, at, []byte(`{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}`))
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(res.Body)
		if err != nil || !bytes.Contains(text, fmt.Appendf(nil, `"0x%x"`, n.chainID)) {
			return nil, errPaymentNodes // wrong chain
		}
		n.mu.Lock()
		n.proven[at] = true
		n.mu.Unlock()
	}
	return n.post(req, at, body)
}

// post reads the whole response, so that a broken one can be retried with the next node.
func (n *paymentNodes) post(req *http.Request, at int, body []byte) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), paymentTimeout)
	defer cancel()
	to := req.Clone(ctx)
	to.URL, to.Host, to.RequestURI = n.endpoints[at], "", ""
	to.Body, to.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if user := to.URL.User; user != nil {
		password, _ := user.Password()
		to.SetBasicAuth(user.Username(), password)
	}
	res, err := n.client.Do(to)
	if err != nil {
		return nil, errPaymentNodes
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxPaymentAnswer))
	if err != nil || res.StatusCode != http.StatusOK { // for any reason: a wrong request, an exceeded quota, a revoked key
		return nil, errPaymentNodes
	}
	if err := answered(text); err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(text))
	return res, nil
}

var errLimited = errors.New("no endpoint of the payment chain answers for now")

const (
	codeLimit   = -32005 // EIP-1474: limit exceeded, of requests or of the size of one
	codeTooMany = 429    // some providers put the HTTP status here
)

// answered is nil if a response answers the call, even with an error: another node would reject a wrong call too.
func answered(text []byte) error {
	var answer struct {
		Result json.RawMessage
		Error  *struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Result == nil && answer.Error == nil {
		return errPaymentNodes // not JSON-RPC, for example a proxy's page
	}
	if answer.Error == nil {
		return nil
	}
	code, said := answer.Error.Code, strings.ToLower(answer.Error.Message)
	limited := slices.ContainsFunc(nodetext.Throttled, func(words string) bool { return strings.Contains(said, words) })
	if code == codeLimit || code == codeTooMany || limited && !strings.Contains(said, "revert") { // a revert message may contain any text
		return fmt.Errorf("%w: %.200s", errLimited, answer.Error.Message)
	}
	return nil
}

// CheckNodes parses the endpoints. Its errors do not contain them.
func CheckNodes(endpoints []string) (parsed []*url.URL, err error) {
	for i, text := range endpoints {
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("payment-rpc: endpoint %d is not an http or https URL", i+1)
		}
		parsed = append(parsed, u)
	}
	if len(parsed) == 0 {
		return nil, errors.New("payment-rpc: required")
	}
	return parsed, nil
}

// DialFunc connects to a node.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// DialNodes returns a client of the payment chain, whose ID the network is. Its errors contain no endpoint.
func DialNodes(ctx context.Context, endpoints []string, network string, dial DialFunc) (*ethclient.Client, error) {
	parsed, err := CheckNodes(endpoints)
	if err != nil {
		return nil, err
	}
	nodes := &paymentNodes{endpoints: parsed, proven: make([]bool, len(parsed)), client: &http.Client{
		Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 64},
	}}
	if _, err := fmt.Sscanf(strings.TrimPrefix(network, "eip155:"), "%d", &nodes.chainID); err != nil {
		return nil, fmt.Errorf("payment-network: %q is not eip155:<chain ID>", network)
	}
	client, err := ethrpc.DialOptions(ctx, "http://payment-chain.invalid", ethrpc.WithHTTPClient(&http.Client{Transport: nodes}))
	if err != nil {
		return nil, errors.New("payment-rpc: no endpoint can be used") // the error's text may contain a URL with a key
	}
	return ethclient.NewClient(client), nil
}
