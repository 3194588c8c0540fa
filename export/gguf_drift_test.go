package export

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// drawnRows are rows of ids of a small vocabulary, of which every second token is trained.
func drawnRows(vocab int) OwnRows {
	own := OwnRows{Data: "drawn"}
	for r := range 2 {
		var ids, labels []int32
		for i := range 24 {
			id := int32((7*i*i + 3*i + 11*r + 1) % vocab)
			ids, labels = append(ids, id), append(labels, id)
			if i%2 == 0 {
				labels[i] = -100
			}
		}
		own.IDs, own.Labels = append(own.IDs, ids), append(own.Labels, labels)
	}
	return own
}

// TestGGUFDrift: the weights that a file in f32 stands for compute what base and adapter compute unmerged, of every
// family that is written, over weights that were quantised for the training or are so in the folder; in q8_0 they
// compute nearly that.
func TestGGUFDrift(t *testing.T) {
	type model struct {
		name, dir, adapter string
		over               *quant.Config
	}
	var models []model
	for _, m := range golden.FamilyModels(t) {
		dir := m.Dir(t)
		// a stand-in that llama.cpp could not read
		if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil {
			t.Fatal(err)
		}
		models = append(models, model{m.Name, dir, m.Adapter(t), nil})
	}
	nf4 := quant.Default()
	packed := filepath.Join(t.TempDir(), "nf4")
	if _, err := Merge(context.Background(), MergeOptions{Model: golden.StoriesDir(t), Adapters: One(trained(t)),
		Out: packed, DType: NF4, AllowLoss: true, Check: []string{}}, session.Env{}); err != nil {
		t.Fatal(err)
	}
	models = append(models, model{"trained over nf4", golden.StoriesDir(t), trained(t), &nf4}, model{"stored in nf4",
		packed, trained(t), nil})
	seen := 0
	for _, m := range models {
		if _, err := Export(context.Background(), Options{Format: "gguf", Model: m.dir, Out: filepath.Join(t.TempDir(),
			"m.gguf")}, session.Env{}); err != nil {
			continue // TestGGUFOfFamilies has the reasons
		}
		seen++
		b, err := session.OpenBase(context.Background(), m.dir, session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		own := drawnRows(b.Config.VocabSize)
		b.Close()
		for dtype, most := range map[string]float64{"f32": 2e-5, "q8_0": 0.2} {
			_, r := exported(t, Options{Format: "gguf", Model: m.dir, Adapter: m.adapter, DType: dtype,
				Trained: m.over, Own: own})
			if r.Drift == nil || r.Drift.Own == nil {
				t.Errorf("%s as %s: not compared, notes %q", m.name, dtype, r.Notes)
				continue
			}
			d := r.Drift.Own
			if d.Tokens != 24 || math.Abs(d.MergedLoss-d.Loss) > most*math.Max(1, d.Loss) || dtype == "f32" &&
				d.Agree != 1 || d.BaseLoss == d.Loss {
				t.Errorf("%s as %s: %+v", m.name, dtype, *d)
			}
			if k := r.Rounding; k == nil || dtype == "f32" && math.Abs(k.Kept-1) > 1e-3 {
				t.Errorf("%s as %s: %+v", m.name, dtype, k)
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d models were compared", seen)
	}
}
