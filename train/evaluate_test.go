package train

import (
	"context"
	"math"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/weights"
)

// TestEvaluationDropsNothing: dropout is of training only, also in the evaluations of a run.
func TestEvaluationDropsNothing(t *testing.T) {
	s := testSpec(t, 8)
	s.LoRA.Dropout, s.Training.LearningRate = 0.5, 1e-2
	s.Dataset.ValSplit = 0.05
	r := mustStart(t, s, Env{})
	e, err := Evaluate(context.Background(), s, s.OutputDir, Env{})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "evaluation at the run's end", *r.EvalLoss, e.Loss, 1e-6)
	none, err := Evaluate(context.Background(), s, "", Env{})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(none.Loss-e.Loss) < 1e-2 {
		t.Errorf("the adapter hardly changes the loss: %v, without it %v", e.Loss, none.Loss)
	}
}

// TestDecodingEqualsTheWhole feeds a sequence piece by piece through the cache, as generation does, and
// compares every row with transformers' logits of the whole.
func TestDecodingEqualsTheWhole(t *testing.T) {
	ref := golden.Open(t, golden.Path(t, "families/logits.safetensors"))
	ids := ref.Ints("ids")
	var files map[string]string
	golden.JSON(t, golden.Path(t, "families/models.json"), &files)
	for name, file := range files {
		for _, piece := range []int{1, 5} {
			t.Run(name, func(t *testing.T) {
				c, err := families.ParseConfig(readFile(t, golden.Path(t, "families/"+name+".config.json")))
				if err != nil {
					t.Fatal(err)
				}
				set, err := weights.OpenFS(fstest.MapFS{"model.safetensors": {Data: readFile(t, golden.Path(t, "families/"+file+".safetensors"))}}, ".")
				if err != nil {
					t.Fatal(err)
				}
				b := &base{name: name, config: c, weights: set}
				t.Cleanup(func() { b.close() })
				on := graph.NewCPU(2)
				l, err := newLogitsStep(b.network(t, kernel.F32, nil, nil), "", piece, piece, len(ids), on)
				if err != nil {
					t.Fatal(err)
				}
				m, err := on.NewStore(l.plan)
				if err != nil {
					t.Fatal(err)
				}
				if err := b.load(context.Background(), l.net, m, 2); err != nil {
					t.Fatal(err)
				}
				r, err := l.bind(m, on)
				if err != nil {
					t.Fatal(err)
				}
				want := ref.Floats(name + ".logits")
				worst := 0.0
				for at := 0; at < len(ids); at += piece {
					part := ids[at:min(at+piece, len(ids))]
					if err := r.forward(part, at); err != nil {
						t.Fatal(err)
					}
					x, err := r.logits()
					if err != nil {
						t.Fatal(err)
					}
					got := numbers(x)
					skip := max(0, piece-len(part)) // rows are the last ones; short pieces repeat their first
					for i := range part {
						for v := range c.VocabSize {
							worst = math.Max(worst, math.Abs(got[(skip+i)*c.VocabSize+v]-want[(at+i)*c.VocabSize+v]))
						}
					}
				}
				if !(worst <= 1e-4) {
					t.Errorf("in pieces of %d: logits differ by up to %.3g, tolerance 1e-4", piece, worst)
				}
			})
		}
	}
}
