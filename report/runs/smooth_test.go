package runs

import (
	"fmt"
	"math"
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

// A curve that falls is not followed late: away from its ends the smoothed one lies on it, and at its end it is the mean
// of the past.
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
