package contracts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/common"
)

// DefaultChainID is the chain that is meant where nothing says which.
const DefaultChainID = 4663

// Deployment says where the market's contracts are on one chain. Files are deployments/<chainId>.json:
// an object of the keys below, addresses in any case (a mixed-case one must have a right EIP-55 checksum).
// The token layer's keys, from epochController on, are all there or all absent; absent ones are zero here.
type Deployment struct {
	ChainID    uint64 // "chainId"
	StartBlock uint64 // "startBlock": the block before which none of the contracts has emitted anything

	DealVault       common.Address // "dealVault"
	AssetRegistry   common.Address // "assetRegistry"
	USDG            common.Address // "usdg"
	PoolManager     common.Address // "poolManager"
	PositionManager common.Address // "positionManager"
	StateView       common.Address // "stateView"
	V4Quoter        common.Address // "v4Quoter"

	EpochController   common.Address // "epochController"
	RewardDistributor common.Address // "rewardDistributor"
	LiquidityStaking  common.Address // "liquidityStaking"
	Burner            common.Address // "burner"
	TKN               common.Address // "tkn"
	STKN              common.Address // "stkn"
	PoolID            common.Hash    // "poolId": the sTKN/TKN pool
}

// maxDeploymentBytes bounds what is read of a file that claims to be a deployment.
const maxDeploymentBytes = 64 << 10

// deployed is a contract of a deployment.
type deployed struct {
	key     string // in the file
	address *common.Address
	events  []eventSpec // nil: its logs are not wanted
	own     bool        // nothing but this market uses it, and it has the events of an owner too
}

// wanted are the events that its logs are decoded by.
func (c deployed) wanted() []eventSpec {
	if c.own {
		return slices.Concat(c.events, ownedEvents)
	}
	return c.events
}

func (d *Deployment) market() []deployed {
	return []deployed{
		{"dealVault", &d.DealVault, vaultEvents, true},
		{"assetRegistry", &d.AssetRegistry, registryEvents, true},
		{"usdg", &d.USDG, nil, false},
		{"poolManager", &d.PoolManager, poolManagerEvents, false},
		{"positionManager", &d.PositionManager, positionManagerEvents, false},
		{"stateView", &d.StateView, nil, false},
		{"v4Quoter", &d.V4Quoter, nil, false},
	}
}

func (d *Deployment) tokenLayer() []deployed {
	return []deployed{
		{"epochController", &d.EpochController, epochEvents, true},
		{"rewardDistributor", &d.RewardDistributor, distributorEvents, true},
		{"liquidityStaking", &d.LiquidityStaking, stakingEvents, true},
		{"burner", &d.Burner, burnerEvents, true},
		{"tkn", &d.TKN, nil, false},
		{"stkn", &d.STKN, nil, false},
	}
}

// Decimals of the dollar, and of the market's own tokens, that the contracts count on.
const (
	USDGDecimals  = 6
	TokenDecimals = 18
)

// HasTokenLayer reports whether the reward, staking and burn contracts are deployed.
func (d Deployment) HasTokenLayer() bool { return d.EpochController != (common.Address{}) }

// Own are the contracts that nothing but this market uses.
func (d Deployment) Own() (own []common.Address) {
	for _, c := range append(d.market(), d.tokenLayer()...) {
		if c.own && *c.address != (common.Address{}) {
			own = append(own, *c.address)
		}
	}
	return own
}

// ReadDeploymentFile reads and validates a deployment that comes from a file of that name. One that is named
// after a chain must be about it.
func ReadDeploymentFile(path string, r io.Reader) (Deployment, error) {
	d, err := ReadDeployment(r)
	if named, notNumber := strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), ".json"), 10, 64); notNumber == nil &&
		d.ChainID != 0 && d.ChainID != named {
		err = errors.Join(err, fmt.Errorf("chainId: %d in a file named after chain %d", d.ChainID, named))
	}
	if err != nil {
		return Deployment{}, fmt.Errorf("deployment %s: %w", path, err)
	}
	return d, nil
}

// ReadDeployment reads and validates a deployment. Its error joins every fault, each beginning with its key;
// what could be read is returned with it.
func ReadDeployment(r io.Reader) (Deployment, error) {
	raw, faults := readObject(io.LimitReader(r, maxDeploymentBytes))
	if raw == nil {
		return Deployment{}, errors.Join(faults...)
	}
	var d Deployment
	known := map[string]bool{} // keys that are given, for better or worse
	take := func(key string, parse func(json.RawMessage) error) {
		value, ok := raw[key]
		if !ok {
			return
		}
		delete(raw, key)
		known[key] = true
		if err := parse(value); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", key, err))
		}
	}
	take("chainId", func(v json.RawMessage) error { return parsePositive(v, &d.ChainID) })
	take("startBlock", func(v json.RawMessage) error { return parseInteger(v, &d.StartBlock) })
	for _, field := range append(d.market(), d.tokenLayer()...) {
		take(field.key, func(v json.RawMessage) error { return parseAddress(v, field.address) })
	}
	take("poolId", func(v json.RawMessage) error { return parseHash(v, &d.PoolID) })
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		faults = append(faults, fmt.Errorf("%s: unknown key", key))
	}
	if !known["startBlock"] {
		faults = append(faults, fmt.Errorf("startBlock: %w", errMissing))
	}
	return d, errors.Join(append(faults, d.faults(known)...)...)
}

// Validate reports every fault of a deployment that was not read from a file.
func (d Deployment) Validate() error { return errors.Join(d.faults(nil)...) }

// Write writes the deployment as ReadDeployment reads it, with checksummed addresses.
func (d Deployment) Write(w io.Writer) error {
	if err := d.Validate(); err != nil {
		return fmt.Errorf("write deployment: %w", err)
	}
	fields := d.market()
	if d.HasTokenLayer() {
		fields = append(fields, d.tokenLayer()...)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"chainId\": %d,\n  \"startBlock\": %d", d.ChainID, d.StartBlock)
	for _, field := range fields {
		fmt.Fprintf(&b, ",\n  %q: %q", field.key, field.address.Hex())
	}
	if d.HasTokenLayer() {
		fmt.Fprintf(&b, ",\n  \"poolId\": %q", d.PoolID.Hex())
	}
	b.WriteString("\n}\n")
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write deployment: %w", err)
	}
	return nil
}

var (
	errMissing = errors.New("missing")
	errZero    = errors.New("zero")
)

// faults are the missing and contradictory values; a key in known was given, and is not missing even if its value
// could not be read.
func (d *Deployment) faults(known map[string]bool) []error {
	var faults []error
	missing := func(key string) {
		if !known[key] {
			faults = append(faults, fmt.Errorf("%s: %w", key, errMissing))
		}
	}
	if d.ChainID == 0 {
		missing("chainId")
	}
	for _, field := range d.market() {
		if *field.address == (common.Address{}) {
			missing(field.key)
		}
	}

	present := d.PoolID != (common.Hash{}) || known["poolId"]
	for _, field := range d.tokenLayer() {
		present = present || known[field.key] || *field.address != (common.Address{})
	}
	if present {
		for _, field := range d.tokenLayer() {
			if *field.address == (common.Address{}) {
				missing(field.key)
			}
		}
		if d.PoolID == (common.Hash{}) {
			missing("poolId")
		}
	}

	owner := map[common.Address]string{}
	for _, field := range append(d.market(), d.tokenLayer()...) {
		if *field.address == (common.Address{}) {
			continue
		}
		if other, taken := owner[*field.address]; taken {
			faults = append(faults, fmt.Errorf("%s: the same address as %s", field.key, other))
		}
		owner[*field.address] = field.key
	}
	return faults
}

// readObject reads one JSON object, nil if it is not one, and reports what a map would hide: keys given twice and text
// after the object.
func readObject(r io.Reader) (map[string]json.RawMessage, []error) {
	values := map[string]json.RawMessage{}
	dec := json.NewDecoder(r)
	malformed := func(err error) (map[string]json.RawMessage, []error) {
		return nil, []error{fmt.Errorf("not a JSON object: %w", err)}
	}
	if start, err := dec.Token(); err != nil {
		return malformed(err)
	} else if start != json.Delim('{') {
		return malformed(fmt.Errorf("it begins with %v", start))
	}
	var faults []error
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return malformed(err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return malformed(err)
		}
		name := key.(string) // the decoder refuses any other key
		if _, twice := values[name]; twice {
			faults = append(faults, fmt.Errorf("%s: given twice", name))
		}
		values[name] = value
	}
	if _, err := dec.Token(); err != nil {
		return malformed(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		faults = append(faults, errors.New("not a JSON object: something follows it"))
	}
	return values, faults
}

func parseInteger(raw json.RawMessage, to *uint64) error {
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		return fmt.Errorf("%s is not a 64-bit unsigned integer", raw)
	}
	*to = n
	return nil
}

func parsePositive(raw json.RawMessage, to *uint64) error {
	if err := parseInteger(raw, to); err != nil {
		return err
	}
	if *to == 0 {
		return errZero
	}
	return nil
}

var hexDigits = regexp.MustCompile(`^0x[0-9a-fA-F]*$`)

func parseHex(raw json.RawMessage, size int) (string, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil || raw[0] != '"' { // null unmarshals, too
		return "", fmt.Errorf("%s is not a string", raw)
	}
	if !hexDigits.MatchString(text) || len(text) != 2+2*size {
		return "", fmt.Errorf("%q is not 0x and %d hex digits", text, 2*size)
	}
	if strings.Trim(text[2:], "0") == "" {
		return "", errZero
	}
	return text, nil
}

func parseAddress(raw json.RawMessage, to *common.Address) error {
	text, err := parseHex(raw, common.AddressLength)
	if err != nil {
		return err
	}
	address := common.HexToAddress(text)
	digits := text[2:]
	mixed := digits != strings.ToLower(digits) && digits != strings.ToUpper(digits)
	if mixed && address.Hex() != text {
		return fmt.Errorf("%s has a wrong checksum (EIP-55)", text)
	}
	*to = address
	return nil
}

func parseHash(raw json.RawMessage, to *common.Hash) error {
	text, err := parseHex(raw, common.HashLength)
	if err != nil {
		return err
	}
	*to = common.HexToHash(text)
	return nil
}
