package simulation

import _ "unsafe" // for go:linkname

// brokerRandomAt is where the embedded broker goes on in the brokerRandom bytes that it draws at once. A run must
// not continue where the last one left off: its seed would not decide everything.
//
//go:linkname brokerRandomAt github.com/twmb/franz-go/pkg/kfake.randPoolAt
var brokerRandomAt int

const brokerRandom = 4 << 10
