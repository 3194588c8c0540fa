package session

import (
	"context"
	"encoding/binary"
	"math"
	"regexp"
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
	for _, folder := range []struct{ name, embeddings, head string }{
		{"families/llama_biases", "model.embed_tokens.weight", "lm_head.weight"},
		{"gemma/gemma3_images", "model.language_model.embed_tokens.weight", "lm_head.weight"},
		{"gemma/gemma3_images", "language_model.model.embed_tokens.weight", "language_model.lm_head.weight"},
	} {
		t.Run(folder.embeddings, func(t *testing.T) { twiceStored(t, folder.name, folder.embeddings, folder.head) })
	}
}

func twiceStored(t *testing.T, folder, embeddings, head string) {
	data := golden.ReadFile(t, golden.Path(t, folder+".safetensors"))
	config := string(golden.ReadFile(t, golden.Path(t, folder+".config.json")))
	vocabulary := regexp.MustCompile(`"vocab_size": (\d+)`)
	rows := vocabulary.FindStringSubmatch(config)[1]
	larger := vocabulary.ReplaceAllString(config, `"vocab_size": 160`)
	open := func(config string, edit func(all []weights.Tensor) []weights.Tensor) *Base {
		src, err := weights.OpenFS(fstest.MapFS{"model.safetensors": {Data: data}}, ".")
		if err != nil {
			t.Fatal(err)
		}
		var all []weights.Tensor
		for _, name := range src.Names() {
			x, _ := src.Tensor(name)
			x.Data = slices.Clone(x.Data)
			if strings.HasSuffix(x.Name, ".embed_tokens.weight") {
				x.Name = embeddings
			}
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
		b.Config = families.Tie(b.Config, b.Weights)
		if err := families.Rename(b.Config, b.Weights); err != nil {
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
	unequal := `base model "tiny": tie_word_embeddings is true in config.json, and ` + head + ` is stored beside ` + embeddings + ` with other values: ` +
		`set tie_word_embeddings to false if the head has weights of its own, else delete ` + head + ` from the checkpoint`
	resized := `base model "tiny": config.json says vocab_size = 160, ` + embeddings + ` has ` + rows + ` rows: ` +
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
		"a larger vocabulary":      {larger, with(weights.BF16, 0), resized},
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
