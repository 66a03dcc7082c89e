package kafka

import "github.com/lienstream/lienstream/topics"

// Outbox is memory for the records of transactions, used again once the broker has them. The zero value is ready for
// use.
type Outbox struct {
	Values  topics.Scratch // keys and values of the records
	records []*Record
	used    int
}

// Record returns a record to fill in and produce.
func (o *Outbox) Record() *Record {
	if o.used == len(o.records) {
		o.records = append(o.records, new(Record))
	}
	r := o.records[o.used]
	o.used++
	*r = Record{}
	return r
}

// Reset makes all memory free again: every record must have been acknowledged.
func (o *Outbox) Reset() {
	o.Values.Reset()
	o.used = 0
}
