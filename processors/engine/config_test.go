package engine

import (
	"strings"
	"testing"
)

func TestConfigNamesItsFaults(t *testing.T) {
	err := Config{Standbys: -1}.Validate()
	for _, want := range []string{
		"brokers: required", "instance: required", "application: required", "dir: required", "partitions: 0", "standbys: -1",
		"file system: required", "commit records: 0", "commit bytes: 0", "fetch bytes: 0", "drain bytes: 0", "cache bytes: 0",
		"commit interval: 0s", "commit timeout: 0s", "lease: 0s", "session-timeout: 0s",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}
