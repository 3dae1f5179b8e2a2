package providers_test

import (
	"os"
	"testing"

	"github.com/opledger/opledger/providers"
)

// fileRef writes a secret into a file and returns its reference.
func fileRef(t testing.TB, path, value string) providers.SecretRef {
	t.Helper()
	if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ref, err := providers.ParseRef("file://" + path)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}
