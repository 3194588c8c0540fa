package objective

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// TestJudgeOfClasses checks F1 and correlations by hand, as scikit-learn and scipy have them.
func TestJudgeOfClasses(t *testing.T) {
	single := classes{ClassificationConfig: ClassificationConfig{Labels: []string{"no", "yes", "never"}}}
	// classes 0 0 1 1, said 0 1 1 1: F1 2/3 and 4/5; the third label is nowhere
	rows := []float32{0, 2, 1, 0 /**/, 0, 1, 2, 0 /**/, 1, 0, 1, 0 /**/, 1, -1, 5, 1}
	want := "[{f1_macro 0.7333} {f1/no 0.6667} {f1/yes 0.8000}]"
	if got := rounded(single.Judge(Judged{4, rows})); got != want {
		t.Errorf("one label: %s, want %s", got, want)
	}
	multi := classes{ClassificationConfig: ClassificationConfig{NumLabels: 2}, form: kernel.ClassMulti}
	rows = []float32{1, 0, 0.5, 3 /**/, 1, 1, -1, 2}
	want = "[{f1_macro 0.6667} {f1/0 0.6667} {f1/1 0.6667}]"
	if got := rounded(multi.Judge(Judged{4, rows})); got != want {
		t.Errorf("several labels: %s, want %s", got, want)
	}
	one := classes{ClassificationConfig: ClassificationConfig{NumLabels: 1}, form: kernel.ClassRegression}
	rows = []float32{1, 10, 2, 20, 3, 15, 3, 40} // ranks 0 1 2.5 2.5 and 0 2 1 3
	if got, want := rounded(one.Judge(Judged{2, rows})), "[{spearman 0.6325}]"; got != want {
		t.Errorf("numbers: %s, want %s", got, want)
	}
	for _, nothing := range []Judged{{}, {2, []float32{1, 2}}} {
		if got := one.Judge(nothing); got != nil {
			t.Errorf("%v has the values %v", nothing, got)
		}
	}
}

// TestJudgeOfVectors checks recalls, the reciprocal rank and the correlation of scores by hand.
func TestJudgeOfVectors(t *testing.T) {
	no := float32(math.NaN())
	rows := []float32{
		partAnchor, no, 1, 0 /**/, partPositive, no, 0.9, 0.1,
		partAnchor, no, 0, 1 /**/, partPositive, no, 0.5, 0.2 /**/, partNegative, no, 0, 0.9,
		partAnchor, 0.9, 1, 0 /**/, partPositive, 0.9, 1, 0,
		partAnchor, 0.1, 1, 0 /**/, partPositive, 0.1, 0, 1,
	}
	want := "[{recall@1 0.5000} {recall@5 1.0000} {recall@10 1.0000} {mrr 0.7500} {spearman 1.0000}]"
	if got := rounded(contrastive{}.Judge(Judged{4, rows})); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func rounded(all []Value) string {
	text := "["
	for i, v := range all {
		if i > 0 {
			text += " "
		}
		text += fmt.Sprintf("{%s %.4f}", v.Name, v.Value)
	}
	return text + "]"
}

// TestJudgedIsBounded checks that records beyond the bound are left out.
func TestJudgedIsBounded(t *testing.T) {
	var j Judged
	for range 3 {
		j.Add(Judged{4, make([]float32, maxJudged/2)})
	}
	if len(j.Rows) != maxJudged {
		t.Errorf("%d numbers are kept, want %d", len(j.Rows), maxJudged)
	}
}
