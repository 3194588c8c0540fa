package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/tier"
)

// TestTiersAreTheirConfigurations: every tier agrees with the configuration in the program that it names, and every one
// of them that a machine has to pass is a tier's.
func TestTiersAreTheirConfigurations(t *testing.T) {
	t.Chdir(t.TempDir())
	var names []string
	for _, row := range tier.Table {
		names = append(names, row.Config)
		c, err := loadConfig(row.Config, nil)
		if err != nil {
			t.Error(err)
			continue
		}
		if wrong := row.Differs(c.Spec); wrong != nil {
			t.Errorf("%s: %s", row.Name, strings.Join(wrong, "; "))
		}
		if row.GPU != (row.Limit > 0) || row.Time <= 0 || row.What == "" || row.Base != "" &&
			!slices.Contains(tier.Bases, row.Base) {
			t.Errorf("%+v", row)
		}
		if e := c.Spec.Expect; row.Fall != e.LossDecrease || row.HeldOut != e.EvalLossDecrease ||
			row.Reference != e.Reference {
			t.Errorf("%+v, the configuration expects %+v", row, e)
		}
	}
	for _, name := range configs.Names() {
		if !slices.Contains(names, name) {
			t.Errorf("%s is no tier's", name)
		}
	}
}

// TestFreeName: two calls in one second have a report each.
func TestFreeName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "20260101T000000Z")
	for _, want := range []string{path, path + "-2", path + "-3"} {
		got := freeName(path)
		if err := os.Mkdir(got, 0o755); err != nil || got != want {
			t.Errorf("%s, want %s (%v)", got, want, err)
		}
	}
}
