package train

import (
	"context"
	"iter"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
)

// cycled yields batches of rows of one length, all of whose tokens are trained, over and over.
func cycled(batches [][][]int32) iter.Seq2[dataset.Batch, error] {
	return func(yield func(dataset.Batch, error) bool) {
		for {
			if batches == nil && !yield(dataset.Batch{}, nil) {
				return
			}
			for _, rows := range batches {
				b := dataset.Batch{CuSeqlens: []int32{0}}
				for _, row := range rows {
					for i, id := range row {
						b.IDs, b.Labels = append(b.IDs, id), append(b.Labels, id)
						b.Positions = append(b.Positions, int32(i))
					}
					b.CuSeqlens = append(b.CuSeqlens, int32(len(b.IDs)))
				}
				if !yield(b, nil) {
					return
				}
			}
		}
	}
}

// TestEVAEqualsPEFT compares the first A of EVA with PEFT's over the same batches. PEFT's random numbers are others, so
// the two subspaces differ by what four power iterations leave: no direction of one is further from the other than a
// cosine of 0.99.
func TestEVAEqualsPEFT(t *testing.T) {
	t.Parallel()
	dir := golden.Outside(t, "goldens/methods/adapters/eva")
	var data struct {
		Batches [][][]int32 `json:"batches"`
	}
	golden.JSON(t, filepath.Join(dir, "data.json"), &data)
	b, init := stories(t), filepath.Join(dir, "init")
	c := peftConfigOf(t, init)
	own, _ := c.Own.(adapter.LoRASettings)
	own.InitLoRAWeights = "eva"
	c.Own = own
	nw, on := network(t, b, kernel.F32, nil, &c), graph.NewCPU(2)
	nw.Start = adapter.NewStart(nw.Method, c, 42)
	in := nw.Start.Inputs()
	pass, err := planInputs(nw, in, session.Shape{Tokens: 256, Sequences: 4, MaxLen: 64}, on)
	if err != nil {
		t.Fatal(err)
	}
	m, err := session.Hold(on, func(m graph.Store) error { return b.Load(context.Background(), pass.Net, m, 2) },
		&pass.Program)
	if err != nil {
		t.Fatal(err)
	}
	const few = "eva needs as many trained tokens as the largest rank, 4, and the first 100 batches have fewer"
	if _, _, err := pass.learn(context.Background(), m, cycled(nil), 2); err == nil ||
		!strings.Contains(err.Error(), few) {
		t.Errorf("batches that train nothing: %v", err)
	}
	batches, tokens, err := pass.learn(context.Background(), m, cycled(data.Batches), 2)
	if settled, of := in.Settled(); err != nil || settled != 2 || of != 2 || tokens != 256*batches {
		t.Fatalf("%d batches of %d tokens, %d of %d layers have settled: %v", batches, tokens, settled, of, err)
	}
	nw.Start.UseInputs(in)
	net, trained, err := nw.Declared()
	if err != nil {
		t.Fatal(err)
	}
	params := trained.List()
	if err := nw.Start.Fill(net, b.Reader(), trained, params); err != nil {
		t.Fatal(err)
	}
	got, want := named(params), golden.Open(t, filepath.Join(init, adapter.WeightsFile))
	for _, layer := range []string{"model.layers.2.self_attn.q_proj", "model.layers.2.mlp.down_proj"} {
		a := got[layer+".lora_A.weight"]
		theirs := want.Floats(adapter.PEFTName(layer + ".lora_A.weight"))
		if cos := smallestCosine(a, theirs, c.R); !(cos >= 0.99) {
			t.Errorf("%s: the smallest cosine between the subspaces is %.6f after %d batches", layer, cos, batches)
		}
		for i, x := range got[layer+".lora_B.weight"] {
			if x != 0 {
				t.Fatalf("B of %s is %v at %d", layer, x, i)
			}
		}
	}
}

// smallestCosine is the smallest singular value of M = A Bᵀ for orthonormal rows, 1 where they span the same: by
// power iteration on 2 - MᵀM.
func smallestCosine(a, b []float64, r int) float64 {
	n, gram := len(a)/r, make([]float64, r*r)
	m := make([]float64, r*r)
	for i := range r * r {
		for k := range n {
			m[i] += a[i/r*n+k] * b[i%r*n+k]
		}
	}
	for i := range r * r {
		for k := range r {
			gram[i] += m[k*r+i/r] * m[k*r+i%r]
		}
	}
	x, largest := make([]float64, r), 0.0
	for i := range x {
		x[i] = 1 + float64(i)/7
	}
	for range 10000 {
		y, squares := make([]float64, r), 0.0
		for j := range r {
			y[j] = 2 * x[j]
			for i := range r {
				y[j] -= gram[j*r+i] * x[i]
			}
			squares += y[j] * y[j]
		}
		largest = math.Sqrt(squares)
		for i := range y {
			x[i] = y[i] / largest
		}
	}
	return math.Sqrt(max(0, 2-largest))
}
