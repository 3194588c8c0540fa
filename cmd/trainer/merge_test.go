package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export"
)

// TestMergeNotesOnce: what holds of several adapters is one note that names them all.
func TestMergeNotesOnce(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"a"}, "a does not say what its adapter was trained over (it has no config.yaml); if that was a 4-bit base, --base nf4-double or nf4 adds it to what it was trained with"},
		{[]string{"a", "b"}, "a and b do not say what their adapters were trained over (they have no config.yaml); if that was a 4-bit base, --base nf4-double or nf4 adds them to what they were trained with"},
		{[]string{"a", "b", "c"}, "a, b and c do not say"},
	} {
		o := mergeFlags{base: "auto"}
		for _, n := range c.names {
			o.Adapters = append(o.Adapters, export.WeightedAdapter{Dir: filepath.Join(dir, n)})
		}
		notes, err := o.findTrained()
		if err != nil || len(notes) != 1 || !strings.HasPrefix(strings.ReplaceAll(notes[0], dir+string(filepath.Separator), ""), c.want) {
			t.Errorf("%v: %q, %v", c.names, notes, err)
		}
	}
}
