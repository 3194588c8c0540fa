package infer

import (
	"encoding/json"
	"math"
	"testing"
)

// TestReportInJSON: a loss so large that its perplexity is no number is printed all the same.
func TestReportInJSON(t *testing.T) {
	for loss, want := range map[float64]string{0: "1", 710: "null"} {
		p := Perplexity(math.Exp(loss))
		text, err := json.Marshal(struct {
			EvalReport
			Group GroupLoss
		}{EvalReport{Loss: loss, Perplexity: p}, GroupLoss{Loss: loss, Perplexity: p}})
		var got struct {
			Perplexity json.RawMessage `json:"perplexity"`
			Group      struct {
				Perplexity json.RawMessage `json:"perplexity"`
			}
		}
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil || string(got.Perplexity) != want || string(got.Group.Perplexity) != want {
			t.Errorf("loss %v: %s, %v", loss, text, err)
		}
	}
}
