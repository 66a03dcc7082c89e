// Package contracts holds the market's Solidity sources and build outputs, says where the contracts of a chain
// are, and turns each of their logs into a typed event with the entity that it concerns. It is pure: it opens
// no connection and keeps no state, and it imports nothing of ours.
//
//	src/           Solidity; build.mjs compiles it into out/
//	deployments/   where the contracts are, a file per chain (Deployment)
//	events.go      the events and their entities
//	decoder.go     a log → an event, or Unknown (Decoder)
package contracts

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
)

//go:embed out/*.json
var outputs embed.FS

// Artifact is a compiled contract.
type Artifact struct {
	ABI      abi.ABI       `json:"abi"`
	Bytecode hexutil.Bytes `json:"bytecode"` // creation code, to which the packed constructor arguments are appended
}

var artifacts = sync.OnceValue(func() map[string]Artifact {
	files, err := outputs.ReadDir("out")
	if err != nil {
		panic(err) // embedded
	}
	all := make(map[string]Artifact, len(files))
	for _, file := range files {
		data, err := outputs.ReadFile("out/" + file.Name())
		if err != nil {
			panic(err)
		}
		var artifact Artifact
		if err := json.Unmarshal(data, &artifact); err != nil {
			panic(fmt.Errorf("contracts/out/%s: %w", file.Name(), err))
		}
		all[strings.TrimSuffix(file.Name(), ".json")] = artifact
	}
	return all
})

// ABI is the interface of one of our own contracts, as src/ names it.
func ABI(name string) (abi.ABI, error) {
	artifact, err := artifactOf(name)
	return artifact.ABI, err
}

// Selector begins the data of a call: which method of a contract is called.
func Selector(signature string) []byte { return crypto.Keccak256([]byte(signature))[:4:4] }

// Bytecode is the creation code of one of our own contracts, without constructor arguments.
func Bytecode(name string) ([]byte, error) {
	artifact, err := artifactOf(name)
	return slices.Clone(artifact.Bytecode), err
}

func artifactOf(name string) (Artifact, error) {
	artifact, ok := artifacts()[name]
	if !ok {
		return Artifact{}, fmt.Errorf("no contract is named %q", name)
	}
	return artifact, nil
}
