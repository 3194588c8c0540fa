package weights

import (
	"fmt"
	"slices"
	"strings"
)

// Spec describes a tensor that a model expects.
type Spec struct {
	Name     string
	Shape    []int
	Optional bool // may be absent; if present, its shape is checked
}

// CheckError lists all differences between a checkpoint and a model.
type CheckError struct {
	Missing    []string // names
	Unexpected []string // names
	Shapes     []string // "name: shape [2 3], expected [3 2]"
}

func (e *CheckError) Error() string { return "the weights do not fit the model:" + e.List() }

// listed is the number of names of each kind that an error shows.
const listed = 5

// List returns the error without its first line: the number of each kind, and the first few names.
func (e *CheckError) List() string {
	var b strings.Builder
	for _, part := range []struct {
		what  string
		lines []string
	}{{"missing", e.Missing}, {"unexpected", e.Unexpected}, {"wrong shape", e.Shapes}} {
		if len(part.lines) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n  %d %s:\n    %s", len(part.lines), part.what,
			strings.Join(part.lines[:min(listed, len(part.lines))], "\n    "))
		if more := len(part.lines) - listed; more > 0 {
			fmt.Fprintf(&b, "\n    and %d more", more)
		}
	}
	return b.String()
}

// Check compares names and shapes of src with want and reports every missing,
// unexpected and wrongly shaped tensor in one *CheckError. Unexpected tensors
// that match a pattern of allowed are accepted: "prefix*", "*suffix" (as
// "*.rotary_emb.inv_freq") or a whole name.
func Check(src Source, want []Spec, allowed ...string) error {
	var e CheckError
	known := make(map[string]bool, len(want))
	for _, spec := range want {
		if known[spec.Name] {
			return fmt.Errorf("check weights: %q is expected twice", spec.Name)
		}
		known[spec.Name] = true
		t, ok := src.Tensor(spec.Name)
		switch {
		case !ok && !spec.Optional:
			e.Missing = append(e.Missing, spec.Name)
		case ok && !slices.Equal(t.Shape, spec.Shape):
			e.Shapes = append(e.Shapes, fmt.Sprintf("%s: shape %v, expected %v", spec.Name, t.Shape, spec.Shape))
		}
	}
	for _, name := range src.Names() {
		if !known[name] && !matchesAny(name, allowed) {
			e.Unexpected = append(e.Unexpected, name)
		}
	}
	if e.Missing == nil && e.Unexpected == nil && e.Shapes == nil {
		return nil
	}
	for _, name := range e.Unexpected {
		for _, q := range quantisedBy {
			if strings.HasSuffix(name, q.ending) {
				return fmt.Errorf("the weights do not fit the model: %s belongs to weights that %s has quantised, %s",
					name, q.method, adviceQuant)
			}
		}
	}
	slices.Sort(e.Missing)
	slices.Sort(e.Shapes)
	return &e
}

func matchesAny(name string, patterns []string) bool {
	for _, p := range patterns {
		if suffix, ok := strings.CutPrefix(p, "*"); ok && strings.HasSuffix(name, suffix) {
			return true
		}
		if prefix, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(name, prefix) {
			return true
		}
		if name == p {
			return true
		}
	}
	return false
}
