package runs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train"
)

// TestStepWithoutEvaluations: the time of a step on the page is not that of the evaluations between steps.
func TestStepWithoutEvaluations(t *testing.T) {
	line := func(step int, seconds float64) string {
		return fmt.Sprintf(`{"step":%d,"loss":2,"num_input_tokens_seen":%d,"tokens/train_per_sec_per_gpu":250,"train_seconds":%v,"resumed_from":0}`+"\n", step, 500*step, seconds)
	}
	eval := func(step int) string { return fmt.Sprintf(`{"step":%d,"eval_loss":3,"eval_runtime":50}`+"\n", step) }
	r := read(t, map[string]string{train.MetricsFile: eval(0) + line(1, 2) + eval(1) + line(2, 54) + eval(2)})
	if _, markdown := pages(t, r); !strings.Contains(markdown, "2.0 s/step") {
		t.Errorf("of 54 s 50 are an evaluation, and 2 steps were made:\n%.600s", markdown)
	}
}

// TestSectionThatOneRunLacks: a section that is empty in one run is no row of its own, and its keys have no value
// there.
func TestSectionThatOneRunLacks(t *testing.T) {
	a, b := read(t, map[string]string{train.MetricsFile: stepLines(2)}), read(t, map[string]string{train.MetricsFile: stepLines(2)})
	a.Settings = []Setting{{Key: "adapter", Value: "lora"}, {Key: "quantization", Value: ""}}
	b.Settings = []Setting{{Key: "adapter", Value: "qlora"}, {Key: "quantization.bits", Value: "4"}}
	_, markdown := pages(t, a, b)
	if !strings.Contains(markdown, "| quantization.bits | – | 4 |") || strings.Contains(markdown, "| quantization |") {
		t.Error(markdown)
	}
}
