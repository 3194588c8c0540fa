package train

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestSlowDataIsSaid: on a device from half of a step on, on a CPU from a tenth on, and not of a few steps.
func TestSlowDataIsSaid(t *testing.T) {
	for _, c := range []struct {
		data, step       float64
		steps            int
		async, streaming bool
		want             string // in the warning; "" = none
	}{
		{1, 10, 100, true, false, ""},
		{4.9, 10, 100, true, false, ""},
		{5, 10, 100, true, false,
			"making the batches of a step takes 5.00 ms of its 10.00 ms (50%), and the device waits once"},
		{12, 12, 100, true, true, "(--workers), or leave dataset.streaming out"},
		{12, 12, 19, true, true, ""},
		{0.9, 10, 100, false, false, ""},
		{1, 10, 100, false, false, "(10%), of which the CPU computes nothing; put dataset.cache_dir on a faster disk"},
	} {
		got := slowData(c.data, c.step, c.steps, c.async, c.streaming)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestDataTimeIsMeasured: every line has the time of its steps' batches, and the end that of the run, which is a part
// of it.
func TestDataTimeIsMeasured(t *testing.T) {
	s := testSpec(t, 6)
	s.Training.LoggingSteps = 2
	r := mustStart(t, s, Env{})
	lines := fileLines(t, s.OutputDir+"/"+MetricsFile)
	sum := 0.0
	for _, line := range lines[:3] {
		var l StepMetrics
		if err := json.Unmarshal([]byte(line), &l); err != nil || !(l.DataMs > 0) {
			t.Errorf("%v: %s", err, line)
		}
		sum += 2 * l.DataMs / 1e3
	}
	var end EndMetrics
	if err := json.Unmarshal([]byte(lines[3]), &end); err != nil ||
		!(end.DataSeconds > 0 && end.DataSeconds < end.Runtime) {
		t.Errorf("%v: %s", err, lines[3])
	}
	golden.Near(t, "sum of the lines", sum, end.DataSeconds, 1e-9)
	if r.DataMs == nil || !(*r.DataMs > 0 && *r.DataMs < 1e3*end.DataSeconds) {
		t.Errorf("the median is %v, all %v s", r.DataMs, end.DataSeconds)
	}
}
