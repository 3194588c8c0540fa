package train

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// headGolden is what transformers or sentence-transformers computed of the batch of heads.
type headGolden struct {
	Count  int                   `json:"num_labels"`
	Labels json.RawMessage       `json:"labels"`
	Pad    int32                 `json:"pad_token_id"`
	Loss   float64               `json:"loss_f64"`
	Scale  float64               `json:"scale"`
	Grads  map[string][2]float64 `json:"grads"`
}

func headGoldens(t *testing.T) (all map[string]headGolden) {
	t.Helper()
	golden.JSON(t, golden.Path(t, "heads/heads.json"), &all)
	return all
}

// headRows are the rows of the batch of heads, and the classes of its tokens.
func headRows(t *testing.T) (rows [][]int32, tokens [][]float32) {
	t.Helper()
	file := golden.Open(t, golden.Path(t, "heads/batch.safetensors"))
	ids, mask, labels := file.Ints("input_ids"), file.Ints("attention_mask"), file.Ints("token.labels")
	T := file.Shape("input_ids")[1]
	for from := 0; from < len(ids); from += T {
		n := 0
		for _, m := range mask[from:][:T] {
			n += int(m)
		}
		var classes []float32
		for _, l := range labels[from:][:n] {
			classes = append(classes, float32(l))
		}
		rows, tokens = append(rows, ids[from:][:n]), append(tokens, classes)
	}
	return rows, tokens
}

// headBatch lays rows with targets end to end.
func headBatch(rows [][]int32, targets [][]float32, pad int32) (b dataset.Batch) {
	b.CuSeqlens, b.Pad = []int32{0}, pad
	for k, ids := range rows {
		b.Rows, b.Starts = append(b.Rows, k), append(b.Starts, len(b.IDs))
		b.IDs, b.Labels = append(b.IDs, ids...), append(b.Labels, ids...)
		for i := range ids {
			b.Positions = append(b.Positions, int32(i))
		}
		b.CuSeqlens = append(b.CuSeqlens, int32(len(b.IDs)))
		b.Targets = append(b.Targets, targets[k]...)
		b.TargetEnds = append(b.TargetEnds, int32(len(b.Targets)))
	}
	return b
}

// headCase is a head of the goldens: the objective and the targets of its rows.
func headCase(t *testing.T, name string, g headGolden) (o objective.Objective, targets [][]float32) {
	t.Helper()
	_, tokens := headRows(t)
	c := objective.ClassificationConfig{NumLabels: g.Count}
	if name == "token" {
		return objective.Of("token_classification", objective.Config{Classification: &c}), tokens
	}
	c.ProblemType = name[len("sequence_"):]
	var one []float32
	if json.Unmarshal(g.Labels, &targets) != nil {
		if err := json.Unmarshal(g.Labels, &one); err != nil {
			t.Fatal(err)
		}
		targets = nil
		for _, x := range one {
			targets = append(targets, []float32{x})
		}
	}
	return objective.Of("classification", objective.Config{Classification: &c}), targets
}

// TestHeadsEqualTransformers compares losses and gradients of classification heads over sequences and tokens with those
// of transformers and PEFT, in float32 and in float64, padded rows beside rows end to end included.
func TestHeadsEqualTransformers(t *testing.T) {
	b := stories(t)
	rows, _ := headRows(t)
	for _, name := range []string{"sequence_single_label", "sequence_multi_label", "sequence_regression", "token"} {
		want := headGoldens(t)[name]
		o, targets := headCase(t, name, want)
		for _, c := range []struct {
			float       kernel.DType
			loss, grads float64
		}{{kernel.F32, 1e-4, 2e-3}, {kernel.F64, 1e-9, 1e-6}} {
			t.Run(name+" "+c.float.String(), func(t *testing.T) {
				batch := headBatch(rows, targets, want.Pad)
				s := newPreferenceStep(t, b, c.float, o, len(batch.IDs)+9, len(rows)+2, Default(),
					golden.Path(t, "heads/"+name))
				s.run.Run(step.SegmentBegin)
				count := len(rows)
				if name == "token" {
					count = len(batch.IDs)
				}
				s.micro(t, batch, count)
				rounded := float64(1/float32(count)) * float64(count) // of the scale
				golden.Near(t, "loss", s.read(t, s.Loss)[0]/rounded, want.Loss, c.loss*want.Loss)
				whole := filepath.Join(os.Getenv("TRAINER_DATA"), "goldens/methods/heads", name, "grads.safetensors")
				s.sameGradientsAs(t, whole, want.Grads, c.grads)
			})
		}
	}
}

// embeddingGolden is the loss of vectors that sentence-transformers computed of the batch of heads.
func embeddingGolden(t *testing.T) (want headGolden, batch dataset.Batch) {
	t.Helper()
	want = headGoldens(t)["embedding"]
	rows, _ := headRows(t)
	batch = headBatch(rows, make([][]float32, len(rows)), want.Pad)
	batch.Targets, batch.TargetEnds = nil, nil
	batch.Groups, batch.Segments = []int32{}, []int32{}
	batch.Rows, batch.Starts = nil, batch.Starts[:0]
	for s := range rows {
		if s%2 == 0 {
			batch.Rows, batch.Starts = append(batch.Rows, s/2), append(batch.Starts, int(batch.CuSeqlens[s]))
			batch.Groups = append(batch.Groups, int32(s))
		}
		batch.Segments = append(batch.Segments, int32(s))
	}
	batch.Groups = append(batch.Groups, int32(len(rows)))
	return want, batch
}

// contrastiveOf returns the objective with the settings of the reference.
func contrastiveOf(want headGolden, change func(c *objective.EmbeddingConfig)) objective.Objective {
	c := objective.EmbeddingConfig{Pooling: "mean", Normalize: true, Temperature: 1 / want.Scale}
	change(&c)
	return objective.Of("contrastive", objective.Config{Embedding: &c})
}

// TestEmbeddingEqualsSentenceTransformers compares loss and gradients with MultipleNegativesRankingLoss over
// transformers and PEFT, and checks that the tolerance tells the last token, dot products, another temperature and
// exchanged texts apart.
func TestEmbeddingEqualsSentenceTransformers(t *testing.T) {
	b := stories(t)
	want, batch := embeddingGolden(t)
	pairs := len(batch.Rows)
	loss := func(t *testing.T, float kernel.DType, batch dataset.Batch,
		o objective.Objective) (*preferenceStep, float64) {
		s := newPreferenceStep(t, b, float, o, len(batch.IDs)+9, 2*pairs+2, Default(),
			golden.Path(t, "heads/embedding"))
		s.run.Run(step.SegmentBegin)
		s.micro(t, batch, pairs)
		return s, s.read(t, s.Loss)[0]
	}
	same := func(*objective.EmbeddingConfig) {}
	for _, c := range []struct {
		float       kernel.DType
		loss, grads float64
	}{{kernel.F32, 1e-4, 2e-3}, {kernel.F64, 1e-9, 1e-6}} {
		t.Run(c.float.String(), func(t *testing.T) {
			s, got := loss(t, c.float, batch, contrastiveOf(want, same))
			golden.Near(t, "loss", got, want.Loss, c.loss*want.Loss)
			whole := filepath.Join(os.Getenv("TRAINER_DATA"), "goldens/methods/heads/embedding/grads.safetensors")
			s.sameGradientsAs(t, whole, want.Grads, c.grads)
		})
	}
	swapped := batch
	swapped.Segments = []int32{0, 3, 2, 1}
	for what, c := range map[string]struct {
		batch  dataset.Batch
		change func(c *objective.EmbeddingConfig)
	}{
		"the last token":  {batch, func(c *objective.EmbeddingConfig) { c.Pooling = "last" }},
		"dot products":    {batch, func(c *objective.EmbeddingConfig) { c.Normalize = false }},
		"a temperature":   {batch, func(c *objective.EmbeddingConfig) { c.Temperature *= 1.01 }},
		"exchanged texts": {swapped, same},
	} {
		if _, got := loss(t, kernel.F64, c.batch, contrastiveOf(want,
			c.change)); !(math.Abs(got-want.Loss) > 1e-4*want.Loss) {
			t.Errorf("%s gives %v, which the tolerance takes for %v", what, got, want.Loss)
		}
	}
}

// TestWrongHeadsFail checks that the tolerances above tell common mistakes apart: the first token or one before the
// last in place of the last, and swapped labels.
func TestWrongHeadsFail(t *testing.T) {
	b := stories(t)
	rows, _ := headRows(t)
	want := headGoldens(t)["sequence_single_label"]
	o, targets := headCase(t, "sequence_single_label", want)
	for what, change := range map[string]func(b *dataset.Batch){
		"the token before the last": func(b *dataset.Batch) { b.Pad = b.IDs[len(b.IDs)-1] },
		"swapped labels":            func(b *dataset.Batch) { b.Targets[0], b.Targets[1] = b.Targets[1], b.Targets[0] },
	} {
		batch := headBatch(rows, targets, want.Pad)
		change(&batch)
		s := newPreferenceStep(t, b, kernel.F64, o, len(batch.IDs), len(rows), Default(),
			golden.Path(t, "heads/sequence_single_label"))
		s.run.Run(step.SegmentBegin)
		s.micro(t, batch, len(rows))
		if loss := s.read(t, s.Loss)[0]; !(math.Abs(loss-want.Loss) > 1e-4*want.Loss) {
			t.Errorf("%s gives %v, which the tolerance takes for %v", what, loss, want.Loss)
		}
	}
}
