package families

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestModelsPageNamesFamilies holds docs/MODELS.md to the table: every model_type is in it.
func TestModelsPageNamesFamilies(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(golden.Root(t), "docs", "MODELS.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range Table {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/MODELS.md does not name %s", name)
		}
	}
}
