package simulation

import _ "unsafe" // for go:linkname

// brokerRandomAt is where the embedded broker goes on in the brokerRandom bytes that it draws at once. What a run leaves is the
// next one's, whose seed would not say all.
//
//go:linkname brokerRandomAt github.com/twmb/franz-go/pkg/kfake.randPoolAt
var brokerRandomAt int

const brokerRandom = 4 << 10
