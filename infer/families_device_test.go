//go:build gpu

package infer

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/session"
)

// TestGPUFamilies compares logits in every precision over a cache with transformers' for the small models of every
// family: biases, grouped heads, head sizes that are not the width's share, windows, rotary scaling.
func TestGPUFamilies(t *testing.T) {
	gputest.Need(t)
	for _, folder := range append([]string{"families"}, golden.FamilyFolders...) {
		// else models of another folder, adapted in another way
		if _, err := os.Stat(golden.Path(t, folder+"/logits.safetensors")); err == nil {
			gpuFamilies(t, folder)
		}
	}
}

func gpuFamilies(t *testing.T, folder string) {
	bf16 := 0.02 // the largest relative error, or 1.5 times the largest that PEFT's bf16 has on a model of the folder
	for _, m := range golden.FamilyModels(t) {
		if m.Folder == folder {
			bf16 = max(bf16, 1.5*m.Runs(t).BF16.Logits)
		}
	}
	var models map[string]string
	golden.JSON(t, golden.Path(t, folder+"/models.json"), &models)
	for _, name := range slices.Sorted(maps.Keys(models)) {
		t.Run(name, func(t *testing.T) {
			cpu, err := familyError(t, folder, name, models[name], graph.NewCPU(2))
			if err != nil || !(cpu < 1e-5) {
				t.Fatalf("on the CPU: relative error of the logits %.3g; %v", cpu, err)
			}
			for p, limit := range map[kernel.Precision]float64{kernel.PrecisionBF16: bf16,
				kernel.PrecisionFP16: bf16 / 8, kernel.PrecisionTF32: bf16 / 4, kernel.PrecisionFP32: 1e-5} {
				on, err := graph.NewGPU(0, 0, p) // it belongs to the subtest's goroutine
				if err != nil {
					t.Fatal(err)
				}
				e, err := familyError(t, folder, name, models[name], on)
				if size := refusedHeads(t, folder, name); size != 0 {
					if want := fmt.Sprintf("head size %d is not supported on the GPU; multiples of 8 up to 512 are",
						size); err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("heads of %d in %v: %v", size, p, err)
					}
				} else if t.Logf("%v: relative error of the logits %.3g, on the CPU %.3g", p, e, cpu); err != nil ||
					!(e < limit) {
					t.Errorf("%v: relative error of the logits %.3g, limit %v; %v", p, e, limit, err)
				}
				on.Close() //nolint:errcheck // the numbers were read
			}
		})
	}
}

// refusedHeads is the first head size of a model's layers that GPUs refuse; 0: they refuse none.
func refusedHeads(t *testing.T, folder, name string) int {
	t.Helper()
	c, err := families.ParseConfig(golden.ReadFile(t, golden.Path(t, folder+"/"+name+".config.json")))
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.NumLayers {
		if size, _ := c.Heads(i); size%8 != 0 {
			return size
		}
	}
	return 0
}

// familyError is the error of a small model's logits, a few tokens at a time over a cache.
func familyError(t *testing.T, folder, name, file string, on graph.Machine) (float64, error) {
	t.Helper()
	dir := t.TempDir()
	for to, from := range map[string]string{"config.json": name + ".config.json", "model.safetensors": file +
		".safetensors"} {
		if err := os.WriteFile(filepath.Join(dir, to), golden.ReadFile(t, golden.Path(t, folder+"/"+from)),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := session.OpenBase(context.Background(), dir, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ref := golden.Open(t, golden.Path(t, folder+"/logits.safetensors"))
	ids, want := ref.Ints("ids"), ref.Floats(name+".logits")
	const size = 5
	l, err := oneSequence(network(t, b, kernel.F32), size, size, len(ids), on)
	if err != nil {
		return 0, err
	}
	m, err := session.Hold(on, func(m graph.Store) error {
		return b.Load(context.Background(), l.Net, m, 2)
	}, &l.Program)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	r, err := l.bind(m, m.Runs[0])
	if err != nil {
		return 0, err
	}
	V := len(want) / len(ids)
	var e, n float64
	for at := 0; at < len(ids); at += size {
		part := ids[at:min(at+size, len(ids))]
		if err := r.forward(piece{start: at, ids: part}); err != nil {
			t.Fatal(err)
		}
		got, err := r.logits()
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range got.F32()[(size-len(part))*V:] { // the last rows are the part's
			d := float64(x) - want[at*V+i]
			e, n = e+d*d, n+want[at*V+i]*want[at*V+i]
		}
	}
	return math.Sqrt(e / n), nil
}
