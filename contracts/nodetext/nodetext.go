// Package nodetext has what nodes of EVM chains and their providers say in errors: of some things they agree on no code, only
// on the words, and more than one stage must understand them.
package nodetext

// Throttled are the phrases, in lower case, by which a provider says that it answers no more for now: another may be asked.
var Throttled = []string{
	"rate limit", "rate-limit", "ratelimit", "rate limited", "too many requests", "per second", "/second", "compute units", "capacity exceeded",
	"quota", "daily request", "monthly", "request limit", "request rate", "usage limit", "throttl", "under too much load", "out of credits", "exceeded its throughput",
}
