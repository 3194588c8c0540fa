package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// SelfCheckReport is what SelfCheck found on a GPU.
type SelfCheckReport struct {
	Device   string        `json:"device"`
	Passed   int           `json:"passed"`
	Failed   int           `json:"failed"`
	Skipped  int           `json:"skipped"`
	Checks   []CheckResult `json:"checks"`
	Duration time.Duration `json:"duration_ns"`
}

// The values of CheckResult.Status.
const (
	CheckPassed  = "pass"
	CheckFailed  = "fail"
	CheckSkipped = "skip"
)

// CheckResult is one kernel on one set of inputs.
type CheckResult struct {
	Kernel string  `json:"kernel"`
	Case   string  `json:"case"`
	Status string  `json:"status"`
	Error  float64 `json:"error"` // |GPU - float64| / |float64| of the output nearest its limit
	Limit  float64 `json:"limit"`
	Reason string  `json:"reason,omitempty"`
}

func (r *SelfCheckReport) add(c CheckResult) {
	r.Checks = append(r.Checks, c)
	switch c.Status {
	case CheckPassed:
		r.Passed++
	case CheckFailed:
		r.Failed++
	default:
		r.Skipped++
	}
}

// SelfCheck runs every kernel on the first GPU, as a graph of its own, and compares it with the same graph in
// float64 on the CPU. The error may be twice that of a plain implementation in the GPU's types. Where there
// is no GPU the error is ErrNoDevice.
func SelfCheck(ctx context.Context, env Env) (SelfCheckReport, error) {
	on, err := openMachine("cuda", env)
	if err != nil {
		return SelfCheckReport{}, err
	}
	defer on.Close() //nolint:errcheck // the report is what matters
	return selfCheck(ctx, on, env)
}

// ownProducts is a machine that can multiply with our own kernels where a library would serve; it reports
// whether there was one.
type ownProducts interface{ OwnProducts() (library bool) }

func selfCheck(ctx context.Context, on graph.Machine, env Env) (SelfCheckReport, error) {
	began := time.Now()
	report := SelfCheckReport{Device: on.Name()}
	cpu := graph.NewCPU(env.Workers)
	defer cpu.Close() //nolint:errcheck // nothing is held
	checks := slices.Concat(elementChecks(), productChecks(), attentionChecks(), lossChecks(), updateChecks())
	references := make([][][]float64, len(checks))
	lost := ""
	compare := func(c check, want [][]float64) {
		if lost != "" {
			report.add(CheckResult{Kernel: c.kernel, Case: c.name, Status: CheckSkipped, Reason: "not run: the device was lost in " + lost})
			return
		}
		r, err := c.compare(on, want)
		if report.add(r); lostDevice(err) {
			lost = c.kernel + " " + c.name
		}
	}
	for i, c := range checks {
		if err := ctx.Err(); err != nil {
			return report, err
		}
		var err error
		if references[i], err = c.run(cpu, kernel.F64, 1); err != nil {
			return report, fmt.Errorf("reference of %s %s: %w", c.kernel, c.name, err)
		}
		compare(c, references[i])
	}
	m, ok := on.(ownProducts)
	if !ok {
		report.Duration = time.Since(began)
		return report, nil
	}
	if !m.OwnProducts() { // they were just checked
		report.add(CheckResult{Kernel: "matmul", Case: "by cuBLASLt", Status: CheckSkipped,
			Reason: "the library was not found (trainer doctor says where it was looked for); products run on our own kernels"})
		report.Duration = time.Since(began)
		return report, nil
	}
	for i, c := range checks {
		if err := ctx.Err(); err != nil {
			return report, err
		}
		if c.products {
			c.name += ", own product"
			compare(c, references[i])
		}
	}
	report.Duration = time.Since(began)
	return report, nil
}

// lostDevice tells whether no work can follow an error.
func lostDevice(err error) bool {
	var e *gpu.Error
	return errors.As(err, &e) && e.Sticky()
}

// compare runs a check twice, and with computed inputs where an output may take their memory. The error is
// that of running it; the result says it as well.
func (c check) compare(on graph.Machine, want [][]float64) (CheckResult, error) {
	got, err := c.run(on, kernel.F32, 2)
	if err != nil {
		return CheckResult{Kernel: c.kernel, Case: c.name, Status: CheckFailed, Reason: err.Error()}, err
	}
	r := c.judge(got, want)
	if c.inPlace == nil || r.Status != CheckPassed {
		return r, nil
	}
	again, err := c.computed().run(on, kernel.F32, 1)
	if err != nil {
		r.Status, r.Reason = CheckFailed, "in place: "+err.Error()
		return r, err
	}
	for i := range got {
		if !slices.Equal(got[i], again[i]) {
			r.Status, r.Reason = CheckFailed, fmt.Sprintf("output %d is different in its input's memory", i)
		}
	}
	return r, nil
}

// judge holds results to their limits.
func (c check) judge(got, want [][]float64) CheckResult {
	r := CheckResult{Kernel: c.kernel, Case: c.name, Status: CheckPassed}
	share := -1.0
	for i, l := range c.limits(want) {
		e := relativeError(got[i], want[i])
		if s := e / max(l.norm, 1e-30); s > share || e != e {
			share, r.Error, r.Limit = s, e, l.norm
		}
		worst, at := largestError(got[i], want[i])
		switch {
		case !(e <= l.norm):
			r.Error, r.Limit, r.Status = e, l.norm, CheckFailed
			r.Reason = fmt.Sprintf("output %d: error %.3g, limit %.3g; element %d of %d is %v, want %v", i, e, l.norm, at, len(want[i]), got[i][at], want[i][at])
			return r
		case !(worst <= l.element):
			r.Status = CheckFailed
			r.Reason = fmt.Sprintf("output %d: element %d of %d is %v, want %v: %.3g apart, limit %.3g", i, at, len(want[i]), got[i][at], want[i][at], worst, l.element)
			return r
		}
		for j := range want[i] {
			if c.bounds[i] == masked && (got[i][j] == 0) != (want[i][j] == 0) {
				r.Status, r.Reason = CheckFailed, fmt.Sprintf("output %d: element %d is %v, want %v: another mask", i, j, got[i][j], want[i][j])
				return r
			}
		}
	}
	return r
}

// relativeError is |got - want| / |want|, or |got| where nothing is wanted; infinite for a result that is no number.
func relativeError(got, want []float64) float64 {
	var e, w float64
	for i := range want {
		d := got[i] - want[i]
		e, w = e+d*d, w+want[i]*want[i]
	}
	switch {
	case e != e:
		return math.Inf(1)
	case w == 0:
		return math.Sqrt(e)
	}
	return math.Sqrt(e / w)
}

// largestError is the largest |got - want| of one element, NaN if there is one.
func largestError(got, want []float64) (worst float64, at int) {
	for i := range want {
		if d := math.Abs(got[i] - want[i]); !(d <= worst) {
			worst, at = d, i
			if d != d {
				break
			}
		}
	}
	return worst, at
}
