// Package nodetext has phrases from the errors of EVM nodes and their providers that more than one stage must
// understand: for some errors they agree on no code, only on the words.
package nodetext

// Throttled are the phrases, in lower case, by which a provider refuses requests for now: another may be asked.
var Throttled = []string{
	"rate limit", "rate-limit", "ratelimit", "rate limited", "too many requests", "per second", "/second", "compute units", "capacity exceeded",
	"quota", "daily request", "monthly", "request limit", "request rate", "usage limit", "throttl", "under too much load", "out of credits", "exceeded its throughput",
}
