package graph

import (
	"slices"
	"testing"
)

// TestPassesAreChosenByMachine: each pass stands once, under a name of its own; a machine takes its passes in the
// list's order, and only a GPU's list merges calls.
func TestPassesAreChosenByMachine(t *testing.T) {
	names := func(list []pass) (all []string) {
		for _, p := range list {
			all = append(all, p.name)
		}
		return all
	}
	all, cpu, gpu := names(passes), names(hostTarget{}.passes()), names(gpuTarget{}.passes())
	if sorted := slices.Sorted(slices.Values(all)); len(slices.Compact(sorted)) != len(all) {
		t.Errorf("a name stands twice in %q", all)
	}
	if !slices.Equal(gpu, all) {
		t.Errorf("a GPU takes %q of %q", gpu, all)
	}
	merging := []string{"rows apart", "read gathered rows", "residual low bits", "fp8 frozen GEMMs",
		"fp32 residual terms", "sum GEMMs", "group GEMMs", "pair gradients' GEMMs", "fuse experts' updates",
		"fuse sums and norms", "fuse norms and rotations",
		"fuse rotations and caches", "share rows", "begin early", "begin early at joins"}
	if want := slices.DeleteFunc(slices.Clone(all), func(n string) bool {
		return slices.Contains(merging,
			n)
	}); !slices.Equal(cpu, want) {
		t.Errorf("the CPU takes %q, want %q", cpu, want)
	}
}
