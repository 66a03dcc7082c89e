// Package topics is the interface between the stages: the catalogue of topics, their records and encodings. It
// must not talk to a broker: topics/kafka does.
package topics

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is the second part of a topic's name, which tells how the topic is used.
type Kind string

// The kinds.
const (
	KindRaw       Kind = "raw" // what the chain said, in order, with barriers
	KindEntity    Kind = "ent" // the latest row of each entity, compacted; a tombstone is an entity gone
	KindEvent     Kind = "evt" // decoded events, append-only
	KindChangelog Kind = "cl"  // the private changelog of an application's tasks
	KindControl   Kind = "ctl" // what nodes tell each other
	KindCommand   Kind = "cmd" // what users and stages ask of an application; its state is in the changelog
)

// Names in the catalogue.
const (
	Logs = "logs" // raw.logs

	FamilySupport = "support" // the audit of the support desk: JSON, never taken back
	FamilyAlert   = "alert"   // evt.alert: nothing takes an alert back

	AppMarket   = "market"   // cl.market
	AppNotifier = "notifier" // cl.notifier, cmd.notifier
	AppSupport  = "support"  // cl.support, cmd.support
	AppFacts    = "facts"    // cl.facts

	Tasks  = "tasks"  // ctl.tasks
	Owners = "owners" // ctl.owners
)

// ChangelogTombstones is how long a changelog keeps a tombstone. Older state on disk may have missed one: wipe
// it, never resume it.
const ChangelogTombstones = 7 * 24 * time.Hour

// DefaultPartitions is the default number of partitions of the raw topic.
const DefaultPartitions = 16

// DefaultPrefix is the first part of the names of topics, and of what goes with them elsewhere, where nothing
// says another.
const DefaultPrefix = "lienstream"

// CommandRetention is how long a command is kept: long enough for a stopped application to continue. The
// results are in the changelog.
const CommandRetention = 30 * 24 * time.Hour

// MaxRecordBytes bounds a record; the undo record of the largest block is far smaller.
const MaxRecordBytes = 8 << 20

// compactedSegmentBytes is the segment size of compacted topics. The active segment is never compacted, and a
// restore reads all of it, so it is small.
const compactedSegmentBytes = 64 << 20

// segmentIndexBytes is the memory that the broker maps for each of a segment's two indexes, enough for 85 MB of
// the smallest batches. With the default of 10 MiB the first write to a partition costs the broker some 10 ms,
// which was half the time of a backfill.
const segmentIndexBytes = 256 << 10

// Topic is an entry of the catalogue.
type Topic struct {
	Prefix     string
	ChainID    uint64
	Kind       Kind
	Entity     string
	Version    int
	Key        string // meaning of the record key, for people
	Partitions int32
	Compacted  bool
	Tombstones time.Duration // how long a compacted topic keeps tombstones
	Retention  time.Duration // how long any other topic keeps a record; 0: forever
	MaxBytes   int64         // how much any other topic keeps of a partition; 0: all
	Schemas    []*Schema     // of the values; none: a private format
}

// Name is "<prefix>.<chainId>.<kind>.<entity>.v<version>".
func (t Topic) Name() string {
	return fmt.Sprintf("%s.%d.%s.%s.v%d", t.Prefix, t.ChainID, t.Kind, t.Entity, t.Version)
}

// Configs are the topic's broker settings. All are explicit, because with default settings a broker would
// delete a chain's history after a week.
func (t Topic) Configs() map[string]string {
	c := map[string]string{
		"cleanup.policy":    "delete",
		"retention.ms":      "-1",
		"retention.bytes":   "-1",
		"max.message.bytes": strconv.Itoa(MaxRecordBytes),

		"segment.index.bytes": strconv.Itoa(segmentIndexBytes),
	}
	if t.MaxBytes > 0 {
		c["retention.bytes"] = strconv.FormatInt(t.MaxBytes, 10)
		c["segment.bytes"] = strconv.FormatInt(t.MaxBytes/4, 10) // a segment goes as a whole
	}
	if t.Retention > 0 {
		c["retention.ms"] = strconv.FormatInt(t.Retention.Milliseconds(), 10)
	}
	if t.Kind == KindCommand {
		c["message.timestamp.type"] = "LogAppendTime" // applications go by the broker's clock, not by that of whoever asks
	}
	if t.Compacted {
		c["cleanup.policy"] = "compact"
		c["delete.retention.ms"] = strconv.FormatInt(t.Tombstones.Milliseconds(), 10)
		c["segment.bytes"] = strconv.Itoa(compactedSegmentBytes)
	}
	return c
}

// table is the catalogue. Partitions 0 means as many as the raw topic: a task reads and writes the same
// partition of every topic.
var table = slices.Concat([]Topic{
	{Kind: KindRaw, Entity: Logs, Version: 1, Key: "entity of the log; barriers have none", Schemas: rawSchemas},
}, entityTopics, eventTopics, []Topic{
	{Kind: KindEvent, Entity: FamilyAlert, Version: 1, Key: "alert ID", Schemas: []*Schema{SchemaAlert}},

	{Kind: KindEvent, Entity: FamilySupport, Version: 1, Key: "ticket"},
}, applicationTopics(), []Topic{
	{Kind: KindControl, Entity: Tasks, Version: 1, Key: "none: never written; the consumer group assigns its partitions"},
	{Kind: KindControl, Entity: Owners, Version: 1, Key: "application, partition and instance", Partitions: 1, Compacted: true, Tombstones: time.Hour},
})

// applications keep state in a changelog each; some are told what to do by a topic of commands.
var applications = []struct {
	name     string
	commands bool
}{
	{AppMarket, false},
	{AppNotifier, true},
	{AppFacts, false},
	{AppSupport, true},
}

func applicationTopics() (all []Topic) {
	for _, a := range applications {
		all = append(all, Topic{Kind: KindChangelog, Entity: a.name, Version: 1, Key: "table and row", Compacted: true, Tombstones: ChangelogTombstones})
		if a.commands {
			all = append(all, Topic{Kind: KindCommand, Entity: a.name, Version: 1, Key: "wallet", Retention: CommandRetention})
		}
	}
	return all
}

const (
	final    = ".final"
	eventKey = "block hash and log index"
)

// Catalogue is all topics of one chain.
type Catalogue struct {
	Prefix     string
	ChainID    uint64
	Partitions int32 // of the raw topic and the topics derived from it; a change requires a rebuild
	// MaxBytes limits each partition of the topics that are not compacted, for an embedded chain, which starts from
	// scratch with every run. 0: unlimited
	MaxBytes int64
}

// Topics lists the catalogue.
func (c Catalogue) Topics() []Topic {
	all := slices.Clone(table)
	for i := range all {
		all[i] = c.complete(all[i])
	}
	return all
}

func (c Catalogue) complete(t Topic) Topic {
	t.Prefix, t.ChainID = c.Prefix, c.ChainID
	if t.Partitions == 0 {
		t.Partitions = c.Partitions
	}
	if t.Compacted && t.Tombstones == 0 {
		t.Tombstones = 24 * time.Hour
	}
	if !t.Compacted {
		t.MaxBytes = c.MaxBytes
	}
	return t
}

// Find returns the topic of a kind and entity.
func (c Catalogue) Find(kind Kind, entity string) (Topic, bool) {
	for _, t := range table {
		if t.Kind == kind && t.Entity == entity {
			return c.complete(t), true
		}
	}
	return Topic{}, false
}

// FindName returns the topic of that name.
func (c Catalogue) FindName(name string) (Topic, bool) {
	for _, t := range c.Topics() {
		if t.Name() == name {
			return t, true
		}
	}
	return Topic{}, false
}

// Raw is the name of the raw topic.
func (c Catalogue) Raw() string { return c.mustName(KindRaw, Logs) }

// Ent is the name of an entity's topic.
func (c Catalogue) Ent(entity string) string { return c.mustName(KindEntity, entity) }

// Changelog is the name of an application's changelog.
func (c Catalogue) Changelog(app string) string { return c.mustName(KindChangelog, app) }

// Commands is the name of an application's command topic.
func (c Catalogue) Commands(app string) string { return c.mustName(KindCommand, app) }

// TasksTopic is the name of the topic whose partitions the processors' consumer group assigns.
func (c Catalogue) TasksTopic() string { return c.mustName(KindControl, Tasks) }

// OwnersTopic is the name of the topic of ownership announcements.
func (c Catalogue) OwnersTopic() string { return c.mustName(KindControl, Owners) }

// mustName panics on an entity that the catalogue lacks: that is a bug.
func (c Catalogue) mustName(kind Kind, entity string) string {
	t, ok := c.Find(kind, entity)
	if !ok {
		panic(fmt.Sprintf("topics: %s.%s is not in the catalogue", kind, entity))
	}
	return t.Name()
}

// KindOf is the kind in a topic's name; empty: it is not one of ours.
func KindOf(name string) Kind {
	parts := strings.Split(name, ".")
	for i := 2; i < len(parts)-2; i++ {
		switch k := Kind(parts[i]); k {
		case KindRaw, KindEntity, KindEvent, KindChangelog, KindControl, KindCommand:
			return k
		}
	}
	return ""
}
