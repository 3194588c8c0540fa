package objective

import (
	"slices"
	"testing"

	"github.com/tierlora/tierlora/dataset"
)

// TestShiftLabels: a row predicts its own next tokens whatever lies beside it; no row's last token predicts the first of the
// next one, even where that is trained. What lies behind a shorter batch stays as it was.
func TestShiftLabels(t *testing.T) {
	const no = dataset.Ignore
	rows := [][]int32{{5, 6, 7}, {8}, {no, 9, 10}, {11, no, 12, 13}, {no, no}}
	var labels, want []int32
	cu, trained := []int32{0}, 0
	for _, row := range rows {
		labels = append(labels, row...)
		alone := make([]int32, len(row))
		trained += ShiftLabels(alone, row, []int32{0, int32(len(row))})
		if last := alone[len(row)-1]; last != no {
			t.Errorf("the last token of %v predicts %d", row, last)
		}
		want = append(want, alone...)
		cu = append(cu, int32(len(labels)))
	}
	if trained != 6 {
		t.Errorf("%d places are trained, want 6", trained)
	}
	cu = append(cu, int32(len(labels)), int32(len(labels))) // segments of no tokens
	for _, room := range []int{0, 7} {
		dst := make([]int32, len(labels)+room)
		for i := range dst {
			dst[i] = 99
		}
		if n := ShiftLabels(dst, labels, cu); n != trained || !slices.Equal(dst[:len(labels)], want) {
			t.Errorf("%d trained places %v, want %d %v", n, dst[:len(labels)], trained, want)
		}
		for _, x := range dst[len(labels):] {
			if x != 99 {
				t.Errorf("behind the batch: %v", dst)
			}
		}
	}
}
