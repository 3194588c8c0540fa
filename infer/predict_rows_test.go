package infer

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
)

// TestLines checks the line of JSON of each task.
func TestLines(t *testing.T) {
	head := func(task string, labels int, problem string, names ...string) PredictorModel {
		return PredictorModel{Task: adapter.Task{Type: task, Labels: labels}, Head: adapter.Head{Problem: problem,
			Labels: names}}
	}
	single := head(adapter.SequenceClassification, 2, adapter.SingleLabel, "bad", "<good>")
	multi := head(adapter.SequenceClassification, 3, adapter.MultiLabel, "a", "b", "c")
	ln3 := float32(math.Log(3))
	for _, c := range []struct {
		name    string
		model   PredictorModel
		numbers []float32
		row     pendingRow
		plain   bool
		want    string
	}{
		{"single label", single, []float32{0, ln3}, pendingRow{}, false,
			`{"row":0,"label":"<good>","score":0.75,"scores":{"bad":0.25,"<good>":0.75}}`},
		{"raw scores", single, []float32{0, 2}, pendingRow{columns: []byte(`{"id":7}`), number: 3}, true,
			`{"row":3,"columns":{"id":7},"label":"<good>","score":2,"scores":{"bad":0,"<good>":2}}`},
		{"multi-label", multi, []float32{ln3, -ln3, 0}, pendingRow{}, false,
			`{"row":0,"labels":["a","c"],"scores":{"a":0.75,"b":0.25,"c":0.5}}`},
		{"no label", multi, []float32{-ln3, -ln3, -ln3}, pendingRow{}, false,
			`{"row":0,"labels":[],"scores":{"a":0.25,"b":0.25,"c":0.25}}`},
		{"reranker", head(adapter.SequenceClassification, 1, adapter.MultiLabel), []float32{ln3}, pendingRow{}, false,
			`{"row":0,"score":0.75}`},
		{"reward", head(adapter.SequenceClassification, 1, adapter.Regression), []float32{-2.5}, pendingRow{}, false,
			`{"row":0,"score":-2.5}`},
		{"regression", head(adapter.SequenceClassification, 2, adapter.Regression), []float32{3, -1}, pendingRow{},
			false, `{"row":0,"scores":{"LABEL_0":3,"LABEL_1":-1}}`},
		{"words", head(adapter.TokenClassification, 2, adapter.SingleLabel, "O", "B"), []float32{9, 0, 0, ln3, ln3, 0},
			pendingRow{TextRow: dataset.TextRow{Words: []string{"Jo", "n", "went"}, First: []int{1, -1, 2}}}, false,
			`{"row":0,"words":["Jo","n","went"],"labels":["B",null,"O"],"scores":[0.75,null,0.75]}`},
		{"vector", head(adapter.FeatureExtraction, 0, ""), []float32{0.5, -1}, pendingRow{}, false,
			`{"row":0,"embedding":[0.5,-1]}`},
		{"no text", single, nil, pendingRow{TextRow: dataset.TextRow{Skipped: "the text is empty"}}, false,
			`{"row":0,"skipped":"the text is empty"}`},
	} {
		w := &rowWindow{model: c.model, o: PredictRowsOptions{Plain: c.plain}}
		if got, err := w.line(c.row, c.numbers); err != nil || string(got) != c.want {
			t.Errorf("%s: %s %v, want %s", c.name, got, err, c.want)
		}
	}
}

// TestSameLines checks that the first and the last line of an earlier call are compared, and no other.
func TestSameLines(t *testing.T) {
	w := &rowWindow{o: PredictRowsOptions{Written: Lines{Count: 3, First: []byte("a"), Last: []byte("b")}}}
	for number, lines := range [][2]string{{"a", "x"}, {"y", ""}, {"b", "a"}} {
		if err := w.same(number, []byte(lines[0])); err != nil {
			t.Errorf("line %d: %v", number, err)
		}
		if err := w.same(number, []byte(lines[1])); errors.Is(err, ErrOtherLines) != (number != 1) {
			t.Errorf("line %d in place of the right one: %v", number, err)
		}
	}
	if w.o.Written.Count = 1; bytes.Equal(w.o.Written.First, w.o.Written.Last) {
		t.Fatal("the test compares equal lines")
	}
	if err := w.same(0, []byte("a")); err == nil {
		t.Error("the only line is the first and the last one")
	}
}
