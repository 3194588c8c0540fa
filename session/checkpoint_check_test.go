package session

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/weights"
)

// TestTwiceStoredEmbeddings: a tied model whose checkpoint has a head too is taken where that is the embedding, in any
// type, and refused where it is another; so is a vocabulary that the embedding has not.
func TestTwiceStoredEmbeddings(t *testing.T) {
	data := golden.ReadFile(t, golden.Path(t, "families/llama_biases.safetensors"))
	config := string(golden.ReadFile(t, golden.Path(t, "families/llama_biases.config.json")))
	open := func(config string, edit func(all []weights.Tensor) []weights.Tensor) *Base {
		src, err := weights.OpenFS(fstest.MapFS{"model.safetensors": {Data: data}}, ".")
		if err != nil {
			t.Fatal(err)
		}
		var all []weights.Tensor
		for _, name := range src.Names() {
			x, _ := src.Tensor(name)
			x.Data = slices.Clone(x.Data)
			all = append(all, x)
		}
		raw, err := weights.Encode(edit(all), nil)
		if err != nil {
			t.Fatal(err)
		}
		b := &Base{Name: "tiny"}
		if b.Weights, err = weights.OpenFS(fstest.MapFS{"model.safetensors": {Data: raw}}, "."); err != nil {
			t.Fatal(err)
		}
		if b.Config, err = families.ParseConfig([]byte(config)); err != nil {
			t.Fatal(err)
		}
		return b
	}
	// with adds a head of the embedding's values in a type, of which one is changed by change.
	with := func(d weights.DType, change float32) func(all []weights.Tensor) []weights.Tensor {
		return func(all []weights.Tensor) []weights.Tensor {
			i := slices.IndexFunc(all, func(x weights.Tensor) bool { return x.Name == embeddings })
			h := weights.Tensor{Name: head, DType: d, Shape: all[i].Shape}
			values := make([]float32, h.Len())
			if err := weights.Float32Range(all[i], 0, len(values), values); err != nil {
				t.Fatal(err)
			}
			values[len(values)-1] += change
			for _, x := range values {
				if d == weights.BF16 {
					h.Data = binary.LittleEndian.AppendUint16(h.Data, kernel.ToBF16(x))
				} else {
					h.Data = binary.LittleEndian.AppendUint32(h.Data, math.Float32bits(x))
				}
			}
			return append(all, h)
		}
	}
	const unequal = `base model "tiny": tie_word_embeddings is true in config.json, and lm_head.weight is stored beside model.embed_tokens.weight with other values: ` +
		`set tie_word_embeddings to false if the head has weights of its own, else delete lm_head.weight from the checkpoint`
	const resized = `base model "tiny": config.json says vocab_size = 96, model.embed_tokens.weight has 64 rows: ` +
		`they are of different checkpoints, or the vocabulary was resized and only one of them saved`
	for what, c := range map[string]struct {
		config string
		edit   func(all []weights.Tensor) []weights.Tensor
		want   string
	}{
		"once":                     {config, func(all []weights.Tensor) []weights.Tensor { return all }, ""},
		"twice":                    {config, with(weights.BF16, 0), ""},
		"twice, in another type":   {config, with(weights.F32, 0), ""},
		"unequal":                  {config, with(weights.BF16, 1), unequal},
		"unequal, in another type": {config, with(weights.F32, 1e-6), unequal},
		"a larger vocabulary":      {strings.Replace(config, `"vocab_size": 64`, `"vocab_size": 96`, 1), with(weights.BF16, 0), resized},
	} {
		t.Run(what, func(t *testing.T) {
			b := open(c.config, c.edit)
			build, err := families.For(b.Config)
			if err != nil {
				t.Fatal(err)
			}
			nw := Network{Config: b.Config, Build: build, Float: kernel.F32}
			n, _, in := nw.Declare("", Shape{Tokens: 4, Sequences: 1, MaxLen: 4})
			hidden := nw.Hidden(n, in)
			nw.Head(n)
			on := graph.NewCPU(1)
			plan, err := on.Compile(n.Builder, hidden)
			if err != nil {
				t.Fatal(err)
			}
			err = b.Check(n)
			if err == nil {
				_, err = Hold(on, func(m graph.Store) error { return b.Load(context.Background(), n, m, 1) }, &Program{Net: n, Plan: plan})
			}
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || err.Error() != c.want):
				t.Errorf("error %v\nexpected %s", err, c.want)
			}
		})
	}
}
