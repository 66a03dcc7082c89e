package roles

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/lienstream/lienstream/ingest/devchain/paychain"
	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/support"
	"github.com/lienstream/lienstream/serving/x402"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// supportService takes paid bug reports. In `up` the payment chain is embedded unless a flag names one.
type supportService struct {
	cfg support.Config

	rpc                []string // of the payment chain
	embeddedAddr       string   // of the embedded one
	facilitator        string
	facilitatorKeyFile string
	facilitatorTimeout time.Duration
	relayerKeyFile     string
	relayerMaxFee      uint64 // wei per gas
	floatKeyFile       string
	floatAddress       string
	tokenKeysFile      string
	textKeysFile       string

	chain *paychain.Chain // embedded
}

func newSupportService() *supportService {
	return &supportService{
		cfg: support.DefaultConfig(), embeddedAddr: paychain.DefaultAddr,
		facilitatorTimeout: x402.DefaultFacilitatorConfig().Timeout, relayerMaxFee: x402.DefaultRelayerConfig().MaxFeeGas.Uint64(),
	}
}

func (*supportService) Name() string { return supportName }

func (s *supportService) URL() string { return cmp.Or(s.cfg.PublicURL, local(s.cfg.HTTP.Listen)) }

func (s *supportService) Configured(p *Process) bool { return len(s.rpc) > 0 || s.embedded(p) }

func (s *supportService) Flags(f *Flags) {
	bindListen(f, &s.cfg.HTTP, "support-addr", "listen address of the support service")
	bind(f, &s.cfg.PublicURL, "support-public-url", "public URL of the support service: the resource that reporters pay for, and the base of ticket links")
	bindList(f, &s.rpc, "payment-rpc", "JSON-RPC endpoints of the payment chain, http or https, comma-separated, tried in order; default in `up`: an embedded chain")
	f.secret("payment-rpc")
	bind(f, &s.embeddedAddr, "payment-chain-addr", "listen address of the embedded payment chain's JSON-RPC")
	bind(f, &s.cfg.Payment.Network, "payment-network", "CAIP-2 ID of the payment chain")
	bind(f, &s.cfg.Payment.Asset, "payment-asset", "address of the token that deposits are paid in")
	bind(f, &s.cfg.Payment.PayTo, "payment-to", "account that receives deposits")
	bind(f, &s.cfg.Payment.Amount, "payment-amount", "amount of a deposit, in the token's smallest unit")
	bind(f, &s.cfg.Payment.Extra.Name, "payment-token-name", "name in the payment token's EIP-712 domain")
	bind(f, &s.cfg.Payment.Extra.Version, "payment-token-version", "version in the payment token's EIP-712 domain")
	bind(f, &s.cfg.Confirmations, "payment-confirmations", "confirmations after which a block of the payment chain is final; a relayer settles at most 256 payments in their time")
	bind(f, &s.facilitator, "facilitator", "URL of an x402 facilitator that settles payments")
	bind(f, &s.facilitatorKeyFile, "facilitator-key-file", "file with the Authorization header for the facilitator")
	bind(f, &s.facilitatorTimeout, "facilitator-timeout", "timeout of a settlement by the facilitator, which waits for the payment chain")
	bind(f, &s.relayerKeyFile, "relayer-key-file", "file with the private key of the account that settles payments, the same on all nodes; it should hold gas and nothing else")
	bind(f, &s.relayerMaxFee, "relayer-max-fee-per-gas", "maximum fee of a settling transaction, in wei per gas")
	bind(f, &s.floatKeyFile, "float-key-file", "file with the private key that signs refunds, for `lienstream support refund` only: the service does not need it")
	bind(f, &s.floatAddress, "float-address", "account that pays refunds, for the metric of its balance")
	bind(f, &s.cfg.FloatCeiling, "float-daily-ceiling", "maximum sum of refunds per day (UTC), in the token's smallest unit")
	bind(f, &s.tokenKeysFile, "support-token-keys-file", "file with the secrets that the support service derives ticket tokens from, one per line, the current one first, the same on all nodes; a former secret may be followed by the time when it expires, such as 2027-01-31T00:00:00Z")
	bind(f, &s.textKeysFile, "support-text-keys-file", "file with the secrets that encrypt reports and replies, one per line, the current one first, the same on all nodes")
	bind(f, &s.cfg.Word, "support-word", "word in the name of the ticket token's header: x-<word>-ticket-token")
}

// embedded reports whether the payment chain is embedded, as it is with the embedded market chain. Deposits on
// it have no value.
func (s *supportService) embedded(p *Process) bool { return p.EmbeddedChain() && len(s.rpc) == 0 }

const paySeed = 1 // for the accounts of the embedded payment chain

func (s *supportService) Defaults(p *Process) {
	if s.embedded(p) {
		p.flags.show("payment-rpc", "embedded", inUp)
		p.flags.fill("payment-asset", paychain.Token.Hex(), embeddedPayments)
		p.flags.fill("payment-to", paychain.Address(paySeed, "payee").Hex(), embeddedPayments)
		p.flags.fill("payment-confirmations", "3", embeddedPayments)
		p.flags.fill("support-public-url", s.URL(), "support-addr")
	}
}

// config is the configuration from all flags.
func (s *supportService) config(p *Process) (support.Config, error) {
	c := s.cfg
	var errs []error
	var err error
	c.HTTP, err = p.HTTP(c.HTTP)
	errs = append(errs, err)
	if s.embedded(p) {
		// The embedded payment chain starts from scratch, so old tickets need not be readable.
		c.Keys = support.Keys{Token: []support.TokenKey{{Secret: rand.Text() + rand.Text()}}, Text: []string{rand.Text() + rand.Text()}}
	}
	if s.tokenKeysFile != "" {
		text, err := p.readFile(s.tokenKeysFile)
		if err == nil {
			c.Keys.Token, err = support.ParseTokenKeys(string(text))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("support-token-keys-file: %w", err))
		}
	}
	if s.textKeysFile != "" {
		c.Keys.Text, err = s.textKeys(p)
		errs = append(errs, err)
	}
	return c, errors.Join(errs...)
}

func (s *supportService) textKeys(p *Process) ([]string, error) {
	text, err := p.readFile(s.textKeysFile)
	if err != nil {
		return nil, fmt.Errorf("support-text-keys-file: %w", err)
	}
	return support.ParseTextKeys(string(text)), nil
}

func (s *supportService) Check(p *Process) error {
	c, err := s.config(p)
	errs := []error{err, c.Validate()}
	if _, _, err := net.SplitHostPort(s.embeddedAddr); err != nil {
		errs = append(errs, fmt.Errorf("payment-chain-addr: %w", err))
	}
	if s.floatAddress != "" && !common.IsHexAddress(s.floatAddress) {
		errs = append(errs, fmt.Errorf("float-address: %q is not an address", s.floatAddress))
	}
	if s.embedded(p) {
		if s.facilitator != "" || s.relayerKeyFile != "" {
			errs = append(errs, errors.New("payment-rpc: required with --facilitator and --relayer-key-file, which settle on a real payment chain"))
		}
		errs = append(errs, p.flags.refuse("the embedded payment chain sets its own; use it with --payment-rpc",
			"payment-network", "payment-asset", "payment-token-name", "payment-token-version")...)
		return errors.Join(errs...)
	}
	if _, err := support.CheckNodes(s.rpc); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.checkSettler(p))...)
}

// checkSettler checks who settles payments on a real chain.
func (s *supportService) checkSettler(p *Process) error {
	var errs []error
	switch {
	case s.facilitator == "" && s.relayerKeyFile == "":
		errs = append(errs, errors.New("payment-rpc: it needs --facilitator or --relayer-key-file, which settle payments"))
	case s.facilitator != "" && s.relayerKeyFile != "":
		errs = append(errs, errors.New("facilitator: not together with --relayer-key-file"))
	case s.facilitatorKeyFile != "" && s.facilitator == "":
		errs = append(errs, errors.New("facilitator-key-file: it needs --facilitator"))
	}
	if s.facilitator != "" {
		cfg, err := s.facilitating(p)
		errs = append(errs, err, cfg.Validate())
	}
	if s.relayerKeyFile != "" {
		_, err := p.readKey("relayer-key-file", s.relayerKeyFile)
		errs = append(errs, err)
	}
	if s.relayerMaxFee == 0 {
		errs = append(errs, errors.New("relayer-max-fee-per-gas: 0 is not positive"))
	}
	return errors.Join(errs...)
}

// facilitating is the facilitator's configuration from its flags.
func (s *supportService) facilitating(p *Process) (x402.FacilitatorConfig, error) {
	cfg := x402.DefaultFacilitatorConfig()
	cfg.URL, cfg.Timeout, cfg.Dial = s.facilitator, s.facilitatorTimeout, p.Dial
	if s.facilitatorKeyFile == "" {
		return cfg, nil
	}
	text, err := p.readFile(s.facilitatorKeyFile)
	if err != nil {
		return cfg, fmt.Errorf("facilitator-key-file: %w", err)
	}
	key := strings.TrimSpace(string(text))
	switch {
	case key == "":
		return cfg, errors.New("facilitator-key-file: it is empty")
	case strings.ContainsFunc(key, unicode.IsControl):
		return cfg, errors.New("facilitator-key-file: has characters that an HTTP header cannot carry")
	}
	cfg.Authorization = key
	return cfg, nil
}

func (s *supportService) Start(ctx context.Context, p *Process) error {
	c, err := s.config(p)
	if err != nil {
		return err
	}
	deps := support.Deps{}
	var client *ethclient.Client
	if s.embedded(p) {
		if client, err = s.startChain(ctx, p); err != nil {
			return err
		}
	} else if client, err = s.dial(ctx, p); err != nil {
		return err
	}
	deps.Chain = client
	terms, err := x402.NewTerms(c.Payment)
	if err != nil {
		return err
	}
	if deps.Desk, err = p.supportDesk(ctx); err != nil {
		return err
	}
	if deps.Settler, deps.Relayer, err = s.settler(p, c, terms, client, deps.Desk); err != nil {
		return err
	}
	market, err := p.MarketClient(ctx)
	if err != nil {
		return err
	}
	deps.Head = func(ctx context.Context) (uint64, error) {
		head, err := market.Head(ctx)
		return max(head.Latest, head.Indexed.Number), err
	}
	deps.Float = common.HexToAddress(s.floatAddress)
	service, err := support.New(c, deps, p.Log, p.Reg)
	if err != nil {
		return err
	}
	p.Ready(s.Name(), service.Ready)
	p.Group.Go(func() error { return service.Run(ctx) })
	return nil
}

// dial connects to the nodes of a payment chain that is not embedded.
func (s *supportService) dial(ctx context.Context, p *Process) (*ethclient.Client, error) {
	client, err := support.DialNodes(ctx, s.rpc, s.cfg.Payment.Network, p.Dial)
	if err == nil {
		p.Closing(func() error { client.Close(); return nil })
	}
	return client, err
}

// supportDesk returns a client of the support application.
func (p *Process) supportDesk(ctx context.Context) (*desk.Client, error) {
	router, err := p.Application(ctx, topics.AppSupport)
	if err != nil {
		return nil, err
	}
	producer, err := kafka.NewProducer(p.Kafka(), topics.AppSupport, kafka.ProducerOptions{})
	if err != nil {
		return nil, err
	}
	p.Closing(func() error { producer.Close(); return nil })
	return desk.NewClient(producer, desk.Routed{Router: router}, p.Catalogue()), nil
}

// settler submits payments to the chain.
func (s *supportService) settler(p *Process, c support.Config, terms *x402.Terms, client *ethclient.Client, desk *desk.Client) (x402.Settler, common.Address, error) {
	if s.facilitator != "" {
		cfg, err := s.facilitating(p)
		if err != nil {
			return nil, common.Address{}, err
		}
		cfg.Resource = x402.Resource{URL: strings.TrimSuffix(c.PublicURL, "/") + "/reports", MimeType: "application/json"}
		f, err := x402.NewFacilitator(cfg, terms)
		return f, common.Address{}, err
	}
	key := paychain.Key(paySeed, "relayer")
	if s.relayerKeyFile != "" {
		var err error
		if key, err = p.readKey("relayer-key-file", s.relayerKeyFile); err != nil {
			return nil, common.Address{}, err
		}
	}
	relaying := x402.DefaultRelayerConfig()
	relaying.MaxFeeGas = new(big.Int).SetUint64(s.relayerMaxFee)
	relaying.Nonces, relaying.Confirmations = support.NonceQueue{Desk: desk, Chain: terms.ChainID}, c.Confirmations
	r, err := x402.NewRelayer(relaying, terms, client, key)
	if err != nil {
		return nil, common.Address{}, err
	}
	return r, r.Address(), nil
}

// readKey reads an account's private key.
func (p *Process) readKey(flag, file string) (*ecdsa.PrivateKey, error) {
	text, err := p.readFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	key, err := crypto.HexToECDSA(strings.TrimPrefix(strings.TrimSpace(string(text)), "0x"))
	if err != nil {
		return nil, fmt.Errorf("%s: not a 32-byte key in hex", flag) // the original error would contain the key
	}
	return key, nil
}

// float is the account that pays refunds.
func (s *supportService) float(p *Process, chain x402.ChainReader) (*support.Float, error) {
	if s.floatKeyFile == "" {
		return nil, errors.New("float-key-file: required to sign a refund; or give the transaction that refunded the deposit")
	}
	key, err := p.readKey("float-key-file", s.floatKeyFile)
	if err != nil {
		return nil, err
	}
	ceiling, err := s.cfg.Ceiling()
	if err != nil {
		return nil, err
	}
	requirement := s.cfg.Payment
	requirement.PayTo = crypto.PubkeyToAddress(key.PublicKey).Hex() // of no use: a refund goes to who has paid
	terms, err := x402.NewTerms(requirement)
	if err != nil {
		return nil, err
	}
	return &support.Float{Key: key, Ceiling: ceiling, Terms: terms, Chain: chain}, nil
}

// startChain starts the embedded payment chain, with a funded account to try it.
func (s *supportService) startChain(ctx context.Context, p *Process) (*ethclient.Client, error) {
	_, port, err := net.SplitHostPort(s.embeddedAddr)
	if err != nil {
		return nil, fmt.Errorf("payment-chain-addr: %w", err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("payment-chain-addr: %w", err)
	}
	if s.chain, err = paychain.New(paychain.Config{Port: int(number), Seed: paySeed, Scratch: p.DataDir}); err != nil {
		return nil, err
	}
	for _, name := range []string{"payer", "float"} {
		if err := s.chain.Fund(ctx, s.chain.Address(name), paychain.Dollars(1000)); err != nil {
			return nil, errors.Join(err, s.chain.Close())
		}
	}
	p.Group.Go(func() error { return s.chain.Run(ctx) })
	return s.chain.Client(), nil
}

// Banner tells how to send a bug report.
func (s *supportService) Banner() []string {
	if s.chain == nil {
		return nil
	}
	return []string{
		"send a bug report, paid on the embedded chain " + s.chain.HTTP() + " (with a test key; the first time takes some 20 s):",
		fmt.Sprintf("PAYER_KEY=%s npx --yes --install-links ./serving/clients/report %s", hexutil.Encode(crypto.FromECDSA(s.chain.Key("payer"))), local(s.cfg.HTTP.Listen)),
	}
}
