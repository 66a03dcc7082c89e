package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/lienstream/lienstream/serving/httpapi"
)

// The messages of MCP: which are handed to the SDK's server, and what becomes of its errors. Their texts quote what the
// caller sent, which may be a key, so each is replaced by one of ours.

// callMCP passes a request to the MCP server. That is stateless and answers at once, so its response is an
// ordinary one.
func (a *Agent) callMCP(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	body, err := req.Body()
	if err != nil {
		return err
	}
	if err := checkMessage(body); err != nil {
		return err
	}
	r := req.HTTP.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	w := newRecorder()
	a.mcp.ServeHTTP(w, r)
	if ctx.Err() != nil {
		return ctx.Err() // whatever was written until then
	}
	if media := w.header.Get("Content-Type"); media != "" {
		res.SetHeader("Content-Type", media)
	}
	said, err := inOurWords(w)
	res.Status, res.Body = w.status, append(res.Body, said...)
	return err
}

// checkMessage lets one message through: a batch would be many requests that are counted as one. A method that is none
// by its letters is not handed on, for it would be repeated, and one that would hold the answer open is refused.
func checkMessage(body []byte) error {
	message, err := readObject(body)
	if err != nil {
		return err
	}
	var version string
	if readText(message["jsonrpc"], &version) != nil || version != "2.0" {
		return invalid(`"jsonrpc" must be "2.0"`)
	}
	if id, has := message["id"]; has && !isMessageID(id) {
		return invalid(`"id" must be a string or an integer below 2^53`)
	}
	raw, has := message["method"]
	if !has {
		return nil // a response, although this server sends no requests
	}
	var method string
	if readText(raw, &method) != nil || len(method) > maxMethod || strings.Trim(strings.ToLower(method), "abcdefghijklmnopqrstuvwxyz_/") != "" {
		return invalid(`"method" is not an MCP method`)
	}
	if method == "subscriptions/listen" {
		return invalid("there is nothing to listen to: nothing here changes while the service runs")
	}
	return nil
}

// isMessageID reports whether an ID comes back as it was sent: the SDK reads a number as a float, and answers its
// integer.
func isMessageID(raw json.RawMessage) bool {
	var (
		text string
		n    uint64
	)
	return readText(raw, &text) == nil || readInteger(json.RawMessage(strings.TrimPrefix(string(raw), "-")), 53, &n) == nil
}

const maxMethod = 48 // bytes

// guarded keeps a panic from ending the process: the server of the tools runs this in goroutines of its own. What went
// wrong otherwise is the caller's fault: the tools answer all else themselves.
func guarded(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
		defer func() {
			if recover() != nil {
				result, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError}
			}
		}()
		result, err = next(ctx, method, req)
		said, ok := errors.AsType[*jsonrpc.Error](err)
		if err == nil || ok && said.Code != jsonrpc.CodeInvalidParams {
			return result, err
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}
	}
}

// faultTexts are what the codes of JSON-RPC and MCP mean.
var faultTexts = map[int64]string{
	jsonrpc.CodeParseError:             "the body is not JSON",
	jsonrpc.CodeInvalidRequest:         "the body is no request of MCP",
	jsonrpc.CodeMethodNotFound:         "there is no such method",
	jsonrpc.CodeInvalidParams:          "there is no such tool or resource, or the parameters are malformed",
	jsonrpc.CodeInternalError:          "internal error",
	mcp.CodeHeaderMismatch:             "the headers Mcp-Protocol-Version, Mcp-Method and Mcp-Name must say what the body says",
	mcp.CodeUnsupportedProtocolVersion: "this version of the protocol is not supported",
}

// plainTexts are what the statuses mean with which the SDK's server refuses a request without a message.
var plainTexts = map[int]string{
	http.StatusBadRequest: "this is no message of MCP, or its headers are not: Accept must name application/json and text/event-stream, " +
		"and Mcp-Protocol-Version a version that initialize answers",
	http.StatusUnsupportedMediaType: "Content-Type must be application/json",
}

// message is the part of a message of JSON-RPC that an error has.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Error   *fault          `json:"error"`
}

type fault struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// inOurWords is the body of an answer of the SDK's server: an error keeps its ID and its code, and gets our text.
func inOurWords(w *recorder) ([]byte, error) {
	if media := w.header.Get("Content-Type"); !strings.HasPrefix(media, "application/json") {
		if w.status < http.StatusBadRequest {
			return w.body, nil
		}
		if text := plainTexts[w.status]; text != "" {
			return []byte(text), nil
		}
		return []byte(http.StatusText(w.status)), nil
	}
	if len(w.body) == 0 {
		return nil, nil
	}
	var said message
	if err := json.Unmarshal(w.body, &said); err != nil {
		return nil, fmt.Errorf("the MCP server's response: %w", err)
	}
	if said.Error == nil {
		return w.body, nil
	}
	text, known := faultTexts[said.Error.Code]
	if !known {
		text = "the request is refused"
	}
	said.Error.Message, said.Error.Data = text, otherVersions(said.Error)
	return json.Marshal(said)
}

// otherVersions is the data of an error about the protocol version: the versions that the server supports.
func otherVersions(f *fault) json.RawMessage {
	var has struct {
		Supported []string `json:"supported"`
	}
	if f.Code != mcp.CodeUnsupportedProtocolVersion || json.Unmarshal(f.Data, &has) != nil {
		return nil
	}
	data, err := json.Marshal(has)
	if err != nil {
		return nil
	}
	return data
}
