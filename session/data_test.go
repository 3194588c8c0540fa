package session

import (
	"testing"

	"github.com/tierlora/tierlora/dataset"
)

// TestPaddingIsKnownToTheModel: a padding token that only the tokenizer has is never looked up.
func TestPaddingIsKnownToTheModel(t *testing.T) {
	for pad, want := range map[int32]int32{7: 7, 99: 99, 100: 0, -1: 0} {
		set := &dataset.Set{Train: dataset.Memory{{IDs: []int32{1, 99}, Labels: []int32{dataset.Ignore, 99}}}, Val: dataset.Memory(nil), PadID: pad}
		if err := checkIDs(set, 100); err != nil || set.PadID != want {
			t.Errorf("padding %d of 100 tokens: %d, want %d, %v", pad, set.PadID, want, err)
		}
	}
	set := &dataset.Set{Train: dataset.Memory{{IDs: []int32{1, 100}, Labels: []int32{dataset.Ignore, 1}}}, Val: dataset.Memory(nil)}
	if err := checkIDs(set, 100); err == nil {
		t.Error("a row's token that the model does not know was taken")
	}
}
