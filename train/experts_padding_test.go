package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
)

// mixtures are small models of every family with experts.
var mixtures = append(slices.Clone(expertModels), golden.FamilyModel{Folder: "shared_experts", Name: "qwen2_moe"})

// TestPaddingReachesNoExpert: on a CPU the losses, gradient norms and adapters of a mixture's steps are the same to the
// bit, however much padding there is behind rows so short that experts have few of their tokens; and between them, as
// far as no row comes to lie in two of attention's tiles of queries.
func TestPaddingReachesNoExpert(t *testing.T) {
	t.Parallel()
	four := quant.Default()
	for _, m := range mixtures {
		b, err := session.OpenBase(t.Context(), m.Dir(t), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		lora, curve := peftConfigOf(t, m.Adapter(t)), m.Runs(t).Curve
		var rows dataset.Memory
		for i, n := range []int{2, 7, 4, 3, 8, 5} {
			ids := slices.Clone(curve.Rows[i%len(curve.Rows)][:n])
			ids[0], ids[n/2] = 0, 0 // as padding is, so that its experts have tokens too
			rows = append(rows, dataset.Row{IDs: ids, Labels: ids})
		}
		for _, scheme := range []*quant.Config{nil, &four} {
			for _, dropout := range []float64{0, 0.3} {
				if lora.Dropout = dropout; dropout > 0 && len(lora.TargetParameters) > 0 {
					continue
				}
				layouts := []dataset.Options{{BatchSize: 2, T: 8}, {BatchSize: 2, T: 12}, {BatchSize: 2, T: 20},
					{BatchSize: 2, T: 60}}
				if dropout == 0 { // rows at other places have other masks
					layouts = append(layouts, dataset.Options{BatchSize: 2, T: 10, Padded: true},
						dataset.Options{BatchSize: 2, T: 50, Padded: true})
				}
				var want string
				for _, o := range layouts {
					got := sixSteps(t, b, lora, scheme, m.Adapter(t), rows, o)
					if want == "" {
						want = got
					}
					if got != want {
						t.Errorf("%s, in 4 bits %v, dropout %v: %+v is not as %+v:\n%s\n%s", m.Name, scheme != nil,
							dropout, o, layouts[0], got, want)
					}
				}
			}
		}
		b.Close() //nolint:errcheck // nothing is read any more
	}
}

// sixSteps are the losses and gradient norms of six steps over a loader's batches, and a hash of the adapter that they
// train.
func sixSteps(t *testing.T, b *session.Base, lora adapter.Config, scheme *quant.Config, from string, rows dataset.Rows,
	o dataset.Options) string {
	t.Helper()
	l, err := dataset.NewLoader(rows, o)
	if err != nil {
		t.Fatal(err)
	}
	c := Default()
	ts := newTestStepOn(t, graph.NewCPU(2), b, network(t, b, kernel.F32, scheme, &lora), infer.ShapeOf(l), c, from)
	defer ts.memory.Close() //nolint:errcheck // the numbers were read
	to, err := session.BindBatch(ts.memory, "")
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for at := range 6 {
		window, _, err := l.NextWindow(1)
		if err != nil {
			t.Fatal(err)
		}
		to.Fill(window[0], session.Part{})
		to.SetDropout(7, at, 0)
		ts.set(t, "loss scale", 1/float64(objective.ShiftLabels(ts.ints(t, "labels"), window[0].Labels,
			window[0].CuSeqlens)))
		for _, u := range ts.Rates {
			h := adamNumbers(c, 5e-3*u.Factor, at+1)
			ts.set(t, u.Numbers, h[:]...)
		}
		ts.step(t)
		said += fmt.Sprintf(" %x %x", ts.read(t, ts.Loss)[0], ts.read(t, ts.Norm)[0])
	}
	h := sha256.New()
	for _, p := range ts.snapshot(t) {
		binary.Write(h, binary.LittleEndian, p.Data) //nolint:errcheck // a hash takes all
	}
	return fmt.Sprintf("%s, adapter %x", said, h.Sum(nil))
}

// TestPaddedMixturesTrainTheSame: a run whose rows are padded to the longest there may be trains the adapter of one
// whose rows lie end to end, to the byte.
func TestPaddedMixturesTrainTheSame(t *testing.T) {
	t.Parallel()
	for _, m := range mixtures {
		flat := familySpec(t, m)
		flat.Training.BatchSize, flat.Training.GradientAccumulationSteps, flat.Dataset.MaxLength = 1, 2, 40
		want := mustStart(t, flat, Env{})
		padded := flat
		padded.Dataset.PadTo, padded.OutputDir = dataset.PadMaxLength, filepath.Join(t.TempDir(), "padded")
		got := mustStart(t, padded, Env{})
		if !slices.Equal(got.Losses, want.Losses) {
			t.Errorf("%s: the losses are\n%v\nend to end\n%v", m.Name, got.Losses, want.Losses)
		}
		if !bytes.Equal(golden.ReadFile(t, padded.OutputDir, adapter.WeightsFile),
			golden.ReadFile(t, flat.OutputDir, adapter.WeightsFile)) {
			t.Errorf("%s: the padded run trains another adapter", m.Name)
		}
	}
}
