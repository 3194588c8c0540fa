package export

import (
	"bytes"
	"context"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// adapted are the linear layers, projections, routers, experts, and parameters of experts.
var adapted = regexp.MustCompile(
	`(_proj|_proj_with_mqa|_projection|gate|router\.proj|\.w[123]|in_proj_(qkvz?|z|ba?|a)|(in|out)put_linear)\.weight$|\.experts\.(gate_up|down)_proj$`)

// TestMergeOfFamilies: a merged model has the tensors of its base by the same names, of which the adapted layers'
// weights differ and no other; what a language model leaves out is there too.
func TestMergeOfFamilies(t *testing.T) {
	for _, m := range golden.FamilyModels(t) {
		dir, out := m.Dir(t), filepath.Join(t.TempDir(), "merged")
		report, err := Merge(context.Background(), MergeOptions{Model: dir, Adapters: One(m.Adapter(t)), Out: out},
			session.Env{})
		if err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		opened, err := session.OpenBase(context.Background(), dir, session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		base, err := weights.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer base.Close() //nolint:errcheck // it was only read
		names := base.Names()
		if q := opened.Config.Quantization; q != nil { // the merged model is in numbers
			names = opened.Tensors().Names()
		}
		merged, err := weights.OpenDir(out)
		if err != nil {
			t.Fatal(err)
		}
		defer merged.Close()                //nolint:errcheck // it was only read
		if len(opened.WholeExperts()) > 0 { // each expert's matrices were merged by themselves
			if !slices.Equal(merged.Names(), names) {
				t.Errorf("%s: the merged model has the tensors %q, its base %q", m.Name, merged.Names(), names)
			}
			again, err := session.OpenBase(context.Background(), out, session.Env{})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close() //nolint:errcheck // it was only read
			base, merged, names = opened.Weights, again.Weights, opened.Weights.Names()
		}
		changed := map[string]bool{}
		for _, name := range names {
			a, _ := base.Tensor(name)
			if opened.Tensors().Config(name) != nil {
				a, _ = opened.Tensors().Tensor(name)
				x := make([]float32, a.Len())
				if err := opened.Tensors().Float32s(name, 0, x); err != nil {
					t.Fatal(err)
				}
				if a, err = weights.FromFloat32s(name, a.DType, a.Shape, x); err != nil {
					t.Fatal(err)
				}
			}
			b, ok := merged.Tensor(name)
			if !ok {
				t.Errorf("%s: the merged model lacks %s", m.Name, name)
			} else if !bytes.Equal(a.Data, b.Data) {
				changed[name] = true
			}
		}
		if len(merged.Names()) != len(names) || len(changed) != report.Layers || report.Layers == 0 {
			t.Errorf("%s: %d tensors of %d, %d changed, %d layers merged", m.Name, len(merged.Names()), len(names),
				len(changed), report.Layers)
		}
		for _, name := range slices.Sorted(maps.Keys(changed)) {
			if !adapted.MatchString(name) || strings.Contains(name, "vision") {
				t.Errorf("%s: %s changed", m.Name, name)
			}
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	}
}
