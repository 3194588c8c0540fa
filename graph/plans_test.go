package graph_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
)

// plansStay compares calls, order, addresses and bytes of every step's plan on a machine with testdata/plans.txt: one
// hash for each layout, over families and adapters.
func plansStay(t *testing.T, name string, on graph.Machine) {
	t.Helper()
	texts := map[string]string{}
	stepCases(t, []string{"llama", "qwen2"}, func(_ string, c model.Config, method string, lora adapter.Config,
		l layout) {
		p := planStep(t, on, kernel.F32, c, method, lora, l).plan
		need, err := graph.Need(p)
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("%s, %v of %d layers, reuse %d", name, l.policy, l.layers, l.reuse)
		texts[key] += fmt.Sprintf("{%d %d %d %d %v}\n%v", need.Arena, need.Batch, need.Frozen, need.Host, need.State, p)
	})
	data, err := os.ReadFile(filepath.Join("testdata", "plans.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(string(data), "\n")
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if line := fmt.Sprintf("%s: %.16x", key, sha256.Sum256([]byte(texts[key]))); !slices.Contains(want, line) {
			t.Errorf("another plan than before; where that is on purpose, this line belongs in testdata/plans.txt:\n%s",
				line)
		}
	}
}

func TestCPUPlansStay(t *testing.T) { plansStay(t, "cpu", graph.NewCPU(2)) }
