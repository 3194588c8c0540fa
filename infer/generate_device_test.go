//go:build gpu

package infer

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/session"
)

// logitsOf are the logits after ids.
func (g *Generator) logitsOf(t *testing.T, ids []int32) []float32 {
	t.Helper()
	return g.logitsAfter(t, ids, 0)[0]
}

func mustGenerator(t *testing.T, adapterDir, device string) *Generator {
	t.Helper()
	g, err := NewGenerator(context.Background(), session.Options{Model: golden.StoriesDir(t), Device: device},
		adapterDir, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// TestGPUGeneratesAsCPU continues the golden prompts greedily in bf16. Where the token differs from
// transformers', the CPU's two best logits must be as close as bf16 can be wrong.
func TestGPUGeneratesAsCPU(t *testing.T) {
	gputest.Need(t)
	type text struct {
		Prompt    string  `json:"prompt"`
		PromptIDs []int32 `json:"prompt_ids"`
		NewIDs    []int32 `json:"new_ids"`
	}
	var want struct {
		Tokens  int    `json:"tokens"`
		Base    []text `json:"base"`
		Adapter []text `json:"adapter"`
	}
	golden.JSON(t, golden.Path(t, "generate/generate.json"), &want)
	for _, c := range []struct {
		name, adapter string
		texts         []text
	}{{"base", "", want.Base}, {"adapter", golden.Path(t, "train/lora/final"), want.Adapter}} {
		t.Run(c.name, func(t *testing.T) {
			on, cpu := mustGenerator(t, c.adapter, "cuda"), mustGenerator(t, c.adapter, "cpu")
			for _, w := range c.texts {
				ids, err := on.generateIDs(context.Background(), w.PromptIDs, GenerateOptions{MaxTokens: want.Tokens})
				if err != nil {
					t.Fatal(err)
				}
				again, err := on.generateIDs(context.Background(), w.PromptIDs, GenerateOptions{MaxTokens: want.Tokens})
				if err != nil || !slices.Equal(ids, again) {
					t.Errorf("%q: a second time gave %v, the first %v; %v", w.Prompt, again, ids, err)
				}
				same := 0
				for same < len(ids) && ids[same] == w.NewIDs[same] {
					same++
				}
				before := append(slices.Clone(w.PromptIDs), w.NewIDs[:min(same, len(ids)-1)]...)
				got, ref := on.logitsOf(t, before), cpu.logitsOf(t, before)
				worst, top := 0.0, slices.Clone(ref)
				for i := range ref {
					worst = math.Max(worst, math.Abs(float64(got[i]-ref[i])))
				}
				slices.Sort(top)
				lead, largest := float64(top[len(top)-1]-top[len(top)-2]), math.Max(math.Abs(float64(top[0])),
					float64(top[len(top)-1]))
				t.Logf("%q: %d of %d tokens equal; there logits up to %.3g differ by at most %.3g, the best leads by "+
					"%.3g", w.Prompt, same, len(ids), largest, worst, lead)
				if !(worst < 0.02*largest) {
					t.Errorf("%q: logits differ by %.3g of %.3g", w.Prompt, worst, largest)
				}
				if same < len(ids) && !(lead < 2*worst) {
					t.Errorf("%q: token %d is %d, want %d, which leads by %.3g", w.Prompt, same, ids[same],
						w.NewIDs[same], lead)
				}
			}
		})
	}
}

// TestGPUGeneratorGrows asks for a longer text than the first one's memory holds.
func TestGPUGeneratorGrows(t *testing.T) {
	gputest.Need(t)
	on, cpu := mustGenerator(t, "", "cuda"), mustGenerator(t, "", "cpu")
	prompt := cpu.Base.Tokenizer.IDs("Once upon a time", true)
	short, err := on.generateIDs(context.Background(), prompt, GenerateOptions{MaxTokens: 4})
	if err != nil {
		t.Fatal(err)
	}
	long, err := on.generateIDs(context.Background(), prompt, GenerateOptions{MaxTokens: 280})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(short, long[:4]) || len(long) != 280 {
		t.Errorf("%d tokens, %v and %v", len(long), short, long[:4])
	}
	ids := append(slices.Clone(prompt), long[:200]...) // prompts in several pieces
	got, ref := on.logitsOf(t, ids), cpu.logitsOf(t, ids)
	var e, n float64
	for i := range ref {
		e, n = e+float64(got[i]-ref[i])*float64(got[i]-ref[i]), n+float64(ref[i])*float64(ref[i])
	}
	t.Logf("logits after %d tokens: relative error %.3g", len(ids), math.Sqrt(e/n))
	if !(math.Sqrt(e/n) < 0.02) {
		t.Errorf("logits after %d tokens differ by %.3g of their norm", len(ids), math.Sqrt(e/n))
	}
}
