package gradcheck

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/kernel"
)

// TestCutBatch: what is kept has trained tokens, each sequence an equal share around its first trained token.
func TestCutBatch(t *testing.T) {
	b := dataset.Batch{CuSeqlens: []int32{0, 10, 14, 30, 40}} // the last is padding
	for i := range 40 {
		b.IDs, b.Labels = append(b.IDs, int32(i)), append(b.Labels, dataset.Ignore)
	}
	for _, i := range []int{3, 4, 5, 6, 7, 8, 9, 13, 28, 29} {
		b.Labels[i] = int32(i)
	}
	for tokens, want := range map[int]string{12: "[1 2 3 4][10 11 12 13][26 27 28 29]", 100: "[0 1 2 3 4 5 6 7 8 9][10 11 12 13][14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29]", 3: "[28 29]"} {
		cut := cutBatch(b, tokens)
		got := ""
		for i := range len(cut.CuSeqlens) - 1 {
			got += fmt.Sprint(cut.IDs[cut.CuSeqlens[i]:cut.CuSeqlens[i+1]])
		}
		if tokens != 3 && got != want || len(cut.IDs) > tokens || cut.TrainedTokens == 0 {
			t.Errorf("%d tokens: %s, %d trained, want %s", tokens, got, cut.TrainedTokens, want)
		}
		if slices.Max(cut.Positions) >= 16 || cut.Positions[0] != 0 || len(cut.Labels) != len(cut.IDs) {
			t.Errorf("%d tokens: positions %v, %d labels", tokens, cut.Positions, len(cut.Labels))
		}
	}
}

// TestRoundTo: to the nearest, ties to even, as bf16 is rounded.
func TestRoundTo(t *testing.T) {
	x := kernel.NewTensor(kernel.T(kernel.F32, 2, 4), kernel.Alloc(32))
	in := []float32{1, 1 + 1.0/256, 1 + 3.0/256, -3.14159, 65535, float32(math.Inf(1)), 1e-30, 0}
	copy(x.F32(), in)
	roundTo(x, 8, nil)
	for i, v := range in {
		if want := kernel.FromBF16(kernel.ToBF16(v)); x.F32()[i] != want {
			t.Errorf("%v became %v, want %v", v, x.F32()[i], want)
		}
	}
	random, sum := rand.New(rand.NewPCG(1, 0)), 0.0 // the mean is the number
	for range 4000 {
		x.F32()[0], x.F32()[1] = 1+0.25/128, -3
		roundTo(x, 8, random)
		if v := x.F32()[0]; v != 1 && v != 1+1.0/128 || x.F32()[1] != -3 {
			t.Fatalf("rounded to %v", x.F32()[:2])
		}
		sum += float64(x.F32()[0]) - 1
	}
	if mean := 128 * sum / 4000; !(math.Abs(mean-0.25) <= 0.03) {
		t.Errorf("rounded up %v of the time, want 0.25", mean)
	}
}
