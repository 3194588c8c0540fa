package runs

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// The smoothing is the formula that the page states.
func TestSmooth(t *testing.T) {
	y := []float64{3, 1, math.NaN(), 4, 1, 5}
	for _, h := range []float64{1, 2.5} {
		got := smooth(y, h)
		for i := range y {
			sum, weight := 0.0, 0.0
			for j := range y {
				seen := 0 // finite values from one to the other
				for k := min(i, j); k < max(i, j); k++ {
					if finite(y[k]) {
						seen++
					}
				}
				if finite(y[j]) {
					w := math.Exp2(-float64(seen) / h)
					sum, weight = sum+w*y[j], weight+w
				}
			}
			if want := sum / weight; finite(y[i]) && math.Abs(got[i]-want) > 1e-12 || finite(y[i]) != finite(got[i]) {
				t.Errorf("half-life %v, place %d: %v, want %v", h, i, got[i], want)
			}
		}
	}
}

// A curve that falls is not followed late: away from its ends the smoothed one lies on it, and at its end it is the
// mean of the past.
func TestSmoothDoesNotLag(t *testing.T) {
	y := make([]float64, 1000)
	for i := range y {
		y[i] = 10 - float64(i)/100
	}
	s := Smooth(y)
	for i := 300; i < 700; i++ {
		if math.Abs(s[i]-y[i]) > 1e-3 {
			t.Fatalf("place %d: %v, the curve is at %v", i, s[i], y[i])
		}
	}
	beta := math.Exp2(-1. / 20)
	if lag := s[999] - y[999]; math.Abs(lag-beta/(1-beta)/100) > 1e-3 {
		t.Errorf("the last is %v above the curve", lag)
	}
}

// The figure above the plot, the list of runs and the page of several runs say where the plot's curve ends.
func TestFigureIsTheEndOfTheCurve(t *testing.T) {
	var losses []string
	for i := range 60 {
		losses = append(losses, fmt.Sprint(8-float64(i)/10+float64(i%2)))
	}
	state := fmt.Sprintf(`{"global_step":60,"max_steps":60,"data_cursor":{"losses":[%s]}}`, strings.Join(losses, ","))
	var lines string
	for i := 10; i <= 60; i += 10 {
		lines += fmt.Sprintf(`{"step":%d,"loss":%v}`+"\n", i, 8-float64(i)/10)
	}
	r := read(t, map[string]string{train.MetricsFile: lines, "checkpoint-60/" + checkpoint.StateFile: state})
	p := r.lossPlot()
	curve := p.Series[1].Y
	last, ok := r.Loss()
	figures := r.figures()
	if end := curve[len(curve)-1]; len(curve) != 60 || !ok || last != end || figures[1].Value != report.Number(end) {
		t.Errorf("%d points end at %v, the list says %v, the figure %+v", len(curve), end, last, figures[1])
	}
	if s := r.Summary(); s.Loss == nil || *s.Loss != last {
		t.Errorf("the summary, and the table of several runs, say %v, the run's page %v", s.Loss, last)
	}
	for _, s := range overlay([]group{{"", []*Run{r}}}, "", "step", func(s Step) float64 { return float64(s.Step) }).Series {
		for i, x := range s.X {
			if s.Y[i] != curve[int(x)-1] {
				t.Errorf("at step %v the curve beside others is %v, by itself %v", x, s.Y[i], curve[int(x)-1])
			}
		}
	}
}

// The time of a run that was resumed is that of its processes together, up to the step that each went on from.
func TestSecondsOfResumedRuns(t *testing.T) {
	line := func(step, from int, own float64) string {
		return fmt.Sprintf(`{"step":%d,"loss":2,"num_input_tokens_seen":%d,"tokens/train_per_sec_per_gpu":7,"train_seconds":%v,"resumed_from":%d}`+"\n", step, 1000*step, own, from)
	}
	for name, c := range map[string]struct {
		log  string
		want []float64
	}{
		"resumed twice":               {line(1, 0, 10) + line(2, 0, 20) + line(3, 2, 5) + line(4, 3, 40) + line(5, 3, 41), []float64{10, 20, 25, 65, 66}},
		"killed behind a checkpoint":  {line(1, 0, 10) + line(2, 0, 20) + line(3, 0, 30) + line(2, 1, 4) + line(3, 1, 8), []float64{10, 14, 18}},
		"killed twice there":          {line(1, 0, 10) + line(2, 1, 9) + line(2, 1, 4), []float64{10, 14}},
		"an older beginning":          {`{"step":1,"loss":2,"num_input_tokens_seen":700,"tokens/train_per_sec_per_gpu":7}` + "\n" + line(2, 1, 3), []float64{100, 103}},
		"a log without its beginning": {line(7, 6, 3), []float64{3}},
	} {
		r := read(t, map[string]string{train.MetricsFile: c.log})
		if got := column(r.Steps, func(s Step) float64 { return s.Seconds }); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
