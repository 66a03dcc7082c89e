package roles

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"
)

func newLogger(level, format string, w io.Writer) (*zap.Logger, error) {
	at, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log-level: %w", err)
	}
	if !slices.Contains([]string{"auto", "json", "console"}, format) {
		return nil, fmt.Errorf("log-format: %q is not json, console or auto", format)
	}
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	if logFormat(format, w) == "console" {
		c := zap.NewDevelopmentEncoderConfig()
		c.EncodeTime = zapcore.TimeEncoderOfLayout(time.TimeOnly)
		encoder = zapcore.NewConsoleEncoder(c)
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), at)
	return zap.New(zapcore.NewSamplerWithOptions(core, time.Second, 20, 1000)), nil
}

// logFormat is the format of logs to w.
func logFormat(format string, w io.Writer) string {
	switch {
	case format != "auto":
		return format
	case terminal(w):
		return "console"
	}
	return "json"
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
