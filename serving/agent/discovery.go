package agent

import (
	"context"
	"strings"

	"github.com/lienstream/lienstream/serving/httpapi"
)

// health reports only that the process responds.
func (a *Agent) health(_ context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	res.Body = append(res.Body, `{"ok":true}`...)
	return nil
}

// text serves a document.
func text(media, page string) httpapi.Handler {
	return func(_ context.Context, _ *httpapi.Request, res *httpapi.Response) error {
		res.SetHeader("Content-Type", media+"; charset=utf-8")
		res.Body = append(res.Body, page...)
		return nil
	}
}

// Discovery is the content of /.well-known/agent.json. It is not an A2A agent card.
type Discovery struct {
	SchemaVersion string            `json:"schemaVersion"`
	Kind          string            `json:"kind"`
	Name          string            `json:"name"`
	Description   string            `json:"description"`
	APIVersion    string            `json:"apiVersion"`
	BaseURL       string            `json:"baseUrl"`
	OpenAPI       string            `json:"openapi"`
	MCP           *string           `json:"mcp"`
	ChainID       uint64            `json:"chainId"`
	Contracts     map[string]string `json:"contracts"`
	Auth          struct {
		Type string `json:"type"`
	} `json:"auth"`
	Signing struct {
		ServerSigns      bool `json:"serverSigns"`
		ServerBroadcasts bool `json:"serverBroadcasts"`
	} `json:"signing"`
	RateLimits struct {
		RequestsPerMinute int    `json:"requestsPerMinute"`
		PreparesPerMinute int    `json:"preparesPerMinute"`
		Scope             string `json:"scope"`
	} `json:"rateLimits"`
	MaxBodyBytes int64    `json:"maxBodyBytes"`
	Conventions  []string `json:"conventions"`
	Support      *string  `json:"support"`
	Workflow     []Step   `json:"workflow"`
}

// Step is a step of an agent's workflow.
type Step struct {
	Do  string `json:"do"`
	Why string `json:"why"`
}

func (a *Agent) discovery(_ context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	base, dep := strings.TrimSuffix(a.cfg.BaseURL, "/"), &a.contracts.dep
	if base == "" {
		base = "http://" + a.Addr()
	}
	v := Discovery{
		SchemaVersion: "1", Kind: "http-api", Name: "Lienstream Agent API",
		Description: "Find stock collateral and listings, read deals from the chain, and have one transaction prepared and simulated.",
		APIVersion:  "v1", BaseURL: base, OpenAPI: base + "/openapi.json", ChainID: dep.ChainID,
		Contracts: map[string]string{
			"dealVault": lower(dep.DealVault), "registry": lower(dep.AssetRegistry), "usdg": lower(dep.USDG),
		},
		MaxBodyBytes: a.cfg.HTTP.MaxBodyBytes,
		Conventions: []string{
			"Amounts and IDs are decimal strings in raw units; format them with the token's decimals.",
			"Timestamps and terms are integers, in seconds. Block numbers are decimal strings.",
			"Every success has evidence: the block that it is true as of. What comes from the index has a checkpoint too.",
			"Requests are strict: an unknown field is INVALID_INPUT. Never send a key or a mnemonic.",
			"error.retryable says whether asking again may help. /skill.md says what each refusal asks for.",
		},
		Workflow: []Step{
			{"GET /v1/capabilities", "check the chain, the contracts, the terms and whether the market is paused"},
			{"GET /v1/listings", "find candidates; the order is no recommendation"},
			{"GET /v1/deals/{dealId}", "read the deal from the chain and keep its termsHash"},
			{"GET /v1/deals/{dealId}/valuation", "compare the cap and the price with what the collateral is worth"},
			{"POST /v1/transactions/prepare", "prepare the approval that is missing, then the action, naming the termsHash and your limit"},
			{"sign and send", "with your own wallet, before expiresAt; then read the deal again"},
		},
	}
	tools := base + mcpRoute
	v.MCP = &tools
	v.Auth.Type = "none"
	v.RateLimits.RequestsPerMinute, v.RateLimits.PreparesPerMinute, v.RateLimits.Scope = a.cfg.Limits.Requests, a.cfg.Limits.Prepares, "all callers together, in any minute; a fifth may come at once"
	if a.cfg.SupportURL != "" {
		v.Support = &a.cfg.SupportURL
	}
	return write(res, v)
}
