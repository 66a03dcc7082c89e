package read

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// protocol is what connections are upgraded to (RFC 9110, 7.8) for brief reads: requests and responses as they are posted, in frames.
// Requests are answered in their order, and more may be sent before that. Of such a read HTTP is most of the work, for both ends.
//
//	frame    = length(4) content
//	response = status(2) lacking(4) body
const protocol = "lienstream-read"

const (
	lengthBytes   = 4
	outcomeBytes  = 2 + 4
	maxBriefBytes = 64 << 10         // of a request
	linkIdle      = 90 * time.Second // after which a connection that nobody asks over is closed
	linkWrite     = 10 * time.Second // for a response
)

var errFrame = errors.New("frame is too long")

// upgrade takes over a connection, and answers what comes over it until it breaks, nothing comes for long, or ctx ends.
func (h *handler) upgrade(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != protocol || ctx.Err() != nil {
		http.Error(w, "upgrade to "+protocol, http.StatusUpgradeRequired)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = conn.Close() }()
	// The request under way is still answered.
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	answering := context.WithoutCancel(ctx)
	out := fmt.Appendf(nil, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
	var frame []byte
	var timed time.Time // when the deadlines were set, which costs as much as a small request
	for in := buffered.Reader; ; {
		if now := time.Now(); now.Sub(timed) >= time.Second {
			timed = now
			if conn.SetWriteDeadline(now.Add(linkWrite)) != nil || conn.SetReadDeadline(now.Add(linkIdle)) != nil {
				return
			}
		}
		if len(out) > maxBriefBytes || !hasFrame(in) { // what came together is answered together
			if _, err := conn.Write(out); err != nil || ctx.Err() != nil {
				return
			}
			if out = out[:0]; cap(out) > maxBriefBytes {
				out = nil
			}
		}
		if frame, err = readFrame(in, frame, maxBriefBytes); err != nil {
			return
		}
		out = h.answerFrame(answering, frame, out)
	}
}

// hasFrame reports whether a whole frame was read ahead.
func hasFrame(in *bufio.Reader) bool {
	if in.Buffered() < lengthBytes {
		return false
	}
	head, err := in.Peek(lengthBytes)
	return err == nil && in.Buffered()-lengthBytes >= int(binary.BigEndian.Uint32(head))
}

// answerFrame appends the frame of a response.
func (h *handler) answerFrame(ctx context.Context, frame, out []byte) []byte {
	start := len(out)
	body := start + lengthBytes + outcomeBytes
	out = append(out, make([]byte, lengthBytes+outcomeBytes)...)
	status, lacking := http.StatusOK, int32(-1)
	out, err := h.answer(ctx, frame, out)
	if err != nil {
		if lack, ok := errors.AsType[*lackingError](err); ok {
			lacking = lack.partition
		}
		var text string
		status, text = refusal(err)
		out = append(out[:body], text...)
	}
	binary.BigEndian.PutUint32(out[start:], uint32(len(out)-start-lengthBytes))
	binary.BigEndian.PutUint16(out[start+lengthBytes:], uint16(status))
	binary.BigEndian.PutUint32(out[start+lengthBytes+2:], uint32(lacking))
	return out
}

// readFrame reads the content of a frame, into the given memory if it has room.
func readFrame(in *bufio.Reader, into []byte, most int) ([]byte, error) {
	head, err := in.Peek(lengthBytes)
	if err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head))
	_, _ = in.Discard(lengthBytes) // which are buffered
	switch {
	case n > most:
		return nil, errFrame
	case n > max(cap(into), maxBriefBytes): // memory for what has come, not for what was said
		if into, err = io.ReadAll(io.LimitReader(in, int64(n))); err == nil && len(into) < n {
			err = io.ErrUnexpectedEOF
		}
		return into, err
	case n > cap(into):
		into = make([]byte, n)
	}
	into = into[:n]
	_, err = io.ReadFull(in, into)
	return into, err
}
