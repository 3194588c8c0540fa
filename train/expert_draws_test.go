package train

import (
	"context"
	"math"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// expertModels are the mixtures of experts that have runs.
var expertModels = []golden.FamilyModel{{Folder: "experts", Name: "gpt_oss"},
	{Folder: "experts", Name: "gpt_oss_balanced"},
	{Folder: "experts", Name: "mixtral_balanced"}, {Folder: "experts", Name: "qwen3_moe"}, mxfp4Model,
	{Folder: "fused_experts", Name: "mixtral_fused"}, {Folder: "fused_experts", Name: "qwen3_moe_fused"}}

// shifted is a row with add added to every id, modulo the vocabulary; and to every trained label.
func shifted(row, label []int32, add, vocab int32) (ids, labels []int32) {
	for i, id := range row {
		ids, labels = append(ids, (id+add)%vocab), append(labels, label[i])
		if label[i] >= 0 {
			labels[i] = (label[i] + add) % vocab
		}
	}
	return ids, labels
}

// offCurve trains a model's curve with add added to every id and gives how far the losses are from want in the mean,
// relative.
func offCurve(t *testing.T, on graph.Machine, m golden.FamilyModel, add int32, want []float64) (mean float64) {
	t.Helper()
	b, err := session.OpenBase(context.Background(), m.Dir(t), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // the numbers were read
	lora, q, c, rows := peftConfigOf(t, m.Adapter(t)), quant.Default(), Default(), m.Runs(t).Curve
	lora.Dropout, q.DoubleQuant = 0, false
	T, vocab := len(rows.Rows[0]), int32(b.Config.VocabSize)
	shape := session.Shape{Tokens: rows.Batch * T, Sequences: rows.Batch, MaxLen: T}
	ts := newTestStepOn(t, on, b, network(t, b, kernel.F32, &q, &lora), shape, c, m.Adapter(t))
	defer ts.memory.Close() //nolint:errcheck // the numbers were read
	for at := range want {
		var ids, labels []int32
		for k := range rows.Batch {
			row := (rows.Batch*at + k) % len(rows.Rows)
			x, y := shifted(rows.Rows[row], rows.Labels[row], add, vocab)
			ids, labels = append(ids, x...), append(labels, y...)
		}
		ts.set(t, "loss scale", 1/float64(ts.fill(t, ids, labels, T)))
		for _, u := range ts.Rates {
			h := adamNumbers(c, rows.LR[at]*u.Factor, at+1)
			ts.set(t, u.Numbers, h[:]...)
		}
		ts.step(t)
		mean += math.Abs(ts.read(t, ts.Loss)[0]-want[at]) / want[at] / float64(len(want))
	}
	return mean
}

// TestExpertDrawsEqualPEFT: in fp32 every draw of a mixture's curve is PEFT's, so that what a GPU's bf16 is off by is
// its own. In the mean: a weight's last bit may become a ten-thousandth of a later loss.
func TestExpertDrawsEqualPEFT(t *testing.T) {
	t.Parallel()
	for _, m := range expertModels {
		draws := m.Runs(t).Draws
		if len(draws) != 16 {
			t.Errorf("%s: %d draws, want 16", m.Name, len(draws))
		}
		most := 0.0
		for _, d := range draws {
			off := offCurve(t, graph.NewCPU(2), m, d.Add, d.Loss)
			if most = max(most, off); !(off <= 1e-4) {
				t.Errorf("%s, %d added to the ids: the losses differ from PEFT's by %.3g in the mean", m.Name, d.Add,
					off)
			}
		}
		t.Logf("%s: losses differ by at most %.3g in the mean of a draw", m.Name, most)
	}
}
