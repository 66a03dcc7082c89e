// Package clients_test runs third-party clients against our services and their OpenAPI descriptions.
package clients_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

func descriptions(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../*/openapi.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("services' descriptions: %v %v", files, err)
	}
	return files
}

// TestDescriptionsLint: not a warning by the recommended rules of spectral and redocly.
func TestDescriptionsLint(t *testing.T) {
	apitest.Node(t, ".", nil, append([]string{"node_modules/@stoplight/spectral-cli/dist/index.js", "lint", "--fail-severity=hint"}, descriptions(t)...)...)
	apitest.Node(t, ".", []string{"REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true"},
		append([]string{"node_modules/@redocly/cli/bin/cli.js", "lint"}, descriptions(t)...)...)
}

// TestTypesCompile: the types that openapi-typescript makes of each description.
func TestTypesCompile(t *testing.T) {
	dir := t.TempDir()
	compile := []string{"node_modules/typescript/lib/tsc.js", "--noEmit", "--strict", "--target", "es2022", "--moduleResolution", "bundler", "--module", "esnext"}
	for _, description := range descriptions(t) {
		types := apitest.Node(t, ".", nil, "node_modules/openapi-typescript/bin/cli.js", description)
		file := filepath.Join(dir, filepath.Base(filepath.Dir(description))+".ts")
		if err := os.WriteFile(file, types, 0o600); err != nil {
			t.Fatal(err)
		}
		compile = append(compile, file)
	}
	apitest.Node(t, ".", nil, compile...)
}
