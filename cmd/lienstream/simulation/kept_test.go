package simulation

import (
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
)

var oracleFlag = flag.String("sim.oracle", "", "file that the oracle is read from; it is written if it is not there. Only one build may use it, and builds with a fault put in")

// keptOracle is an oracle in a file. Most answers are those of the block before.
type keptOracle struct {
	Bodies  []string
	Answers map[string]map[string]keptReply
	Topics  map[int32]map[string]map[string]string
}

type keptReply struct {
	Status, Body int
	Number, Hash string
}

// keep writes an oracle to a file that must not exist.
func keep(file string, o *oracle) error {
	k := keptOracle{Answers: map[string]map[string]keptReply{}, Topics: o.topics}
	known := map[string]int{}
	for block, answers := range o.answers {
		k.Answers[block] = map[string]keptReply{}
		for path, r := range answers {
			at, ok := known[r.body]
			if !ok {
				at = len(k.Bodies)
				known[r.body], k.Bodies = at, append(k.Bodies, r.body)
			}
			k.Answers[block][path] = keptReply{r.status, at, r.number, r.hash}
		}
	}
	part := fmt.Sprint(file, ".", os.Getpid()) // several processes may begin at once
	f, err := os.Create(part)
	if err != nil {
		return err
	}
	if err := errors.Join(gob.NewEncoder(f).Encode(&k), f.Close()); err != nil {
		return err
	}
	return os.Rename(part, file)
}

// kept reads an oracle; nil: the file is not there.
func kept(file string, rec *recording) (*oracle, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var k keptOracle
	if err := gob.NewDecoder(f).Decode(&k); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	o := newOracle(rec)
	o.topics = k.Topics
	for block, answers := range k.Answers {
		o.answers[block] = map[string]reply{}
		for path, r := range answers {
			o.answers[block][path] = reply{r.Status, r.Number, r.Hash, k.Bodies[r.Body]}
		}
		if o.deals[block], err = dealsOf(o.answers[block]["/deals?limit=200"].body); err != nil {
			return nil, err
		}
	}
	return o, nil
}
