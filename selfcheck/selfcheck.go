// Package selfcheck runs every kernel on a GPU and compares it with the same graph in float64 on the CPU.
package selfcheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// Report is what Run found on a GPU.
type Report struct {
	Device   string        `json:"device"`
	Passed   int           `json:"passed"`
	Failed   int           `json:"failed"`
	Skipped  int           `json:"skipped"`
	Checks   []Result      `json:"checks"`
	Duration time.Duration `json:"duration_ns"`
}

// The values of Result.Status.
const (
	StatusPass = "pass"
	StatusFail = "fail"
	StatusSkip = "skip"
)

// Result is one kernel on one set of inputs.
type Result struct {
	Precision string  `json:"precision"`
	Kernel    string  `json:"kernel"`
	Case      string  `json:"case"`
	Status    string  `json:"status"`
	Error     float64 `json:"error"` // |GPU - float64| / |float64| of the output nearest its limit
	Limit     float64 `json:"limit"`
	Reason    string  `json:"reason,omitempty"`
}

func (r *Report) add(c Result) {
	r.Checks = append(r.Checks, c)
	switch c.Status {
	case StatusPass:
		r.Passed++
	case StatusFail:
		r.Failed++
	default:
		r.Skipped++
	}
}

// Run runs every kernel on the first GPU in every precision, as a graph of its own, and compares it with the same
// graph in float64 on the CPU. The error may be twice that of a plain implementation in the GPU's types. Where there
// is no GPU the error is ErrNoDevice.
func Run(ctx context.Context, env session.Env) (Report, error) {
	var s *selfChecker
	for _, p := range checkedPrecisions {
		on, err := session.OpenMachine("cuda", p.String(), env)
		if s == nil { // the checks are made for a device that is there
			if err != nil {
				return Report{}, err
			}
			s = newSelfChecker(env)
		}
		if err != nil && p.FrozenFP8() { // other precisions opened the device
			s.report.add(Result{Precision: p.String(), Kernel: "fp8", Case: "all", Status: StatusSkip,
				Reason: err.Error()})
			continue
		}
		if err != nil {
			return s.report, err
		}
		err = errors.Join(s.run(ctx, on), on.Close())
		if err != nil {
			return s.report, err
		}
	}
	s.report.Duration = time.Since(s.began)
	return s.report, nil
}

// checkedPrecisions are all. TF32 differs from fp32 in the library's GEMMs alone, and FP8 from bf16 in GEMMs of its
// own.
var checkedPrecisions = []kernel.Precision{kernel.PrecisionBF16, kernel.PrecisionFP16, kernel.PrecisionFP32,
	kernel.PrecisionTF32, kernel.PrecisionFP8}

// runsIn tells whether a check is one of a precision.
func (c check) runsIn(p kernel.Precision) bool {
	return c.fp8 == p.FrozenFP8() && (c.gemm || p != kernel.PrecisionTF32)
}

// nativeGEMM is a machine that can multiply with native kernels where a library would serve; it reports
// whether there was one.
type nativeGEMM interface{ UseNativeGEMM() (library bool) }

// selfChecker runs checks on machines and keeps what they are compared with.
type selfChecker struct {
	workers    int // that compute references, and half of those that judge results
	began      time.Time
	checks     []check
	references [][][]float64 // of each check, in float64
	lost       string        // the check in which the device was lost
	report     Report

	pending []*Result     // of the machine at hand, in the order of the checks
	judging chan struct{} // one for each result that is being judged
	judged  sync.WaitGroup
}

func newSelfChecker(env session.Env) *selfChecker {
	checks := slices.Concat(elementChecks(), gemmChecks(), lowRankChecks(), attentionChecks(), lossChecks(),
		baseGradientChecks(), updateChecks(), expertChecks(), fusedChecks(), fewRowsChecks(), convChecks(),
		headGateChecks(), deltaChecks(), stateSpaceChecks(), fp8Checks(), preferenceChecks(), unpairedChecks(),
		doraChecks(), taskChecks(), policyChecks(), latentChecks())
	workers := env.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	return &selfChecker{workers: workers, began: time.Now(), checks: checks,
		references: make([][][]float64, len(checks)),
		judging:    make(chan struct{}, 2*workers)}
}

// run does every check on a machine, in its precision. References and limits are computed beside the machine's work.
func (s *selfChecker) run(ctx context.Context, on graph.Machine) error {
	err := s.runAll(ctx, on)
	s.judged.Wait()
	for _, r := range s.pending {
		s.report.add(*r)
	}
	s.pending = nil
	return err
}

// reference is what a check is compared with, or why there is nothing.
type reference struct {
	of  int // the check
	out [][]float64
	err error
}

// missing computes the references that a precision needs and that are not there, some ahead of their use. It gives them
// in the order of the checks. Each worker computes whole references on one core: most are too small to share among
// cores.
func (s *selfChecker) missing(ctx context.Context, p kernel.Precision) <-chan chan reference {
	var of []int
	for i, c := range s.checks {
		if s.references[i] == nil && c.runsIn(p) {
			of = append(of, i)
		}
	}
	type job struct {
		of  int
		out chan reference
	}
	ready, jobs := make(chan chan reference, 64), make(chan job)
	rescue.Go(func() {
		defer close(ready)
		defer close(jobs)
		for _, i := range of {
			out := make(chan reference, 1)
			select {
			case jobs <- job{i, out}:
				ready <- out
			case <-ctx.Done():
				return
			}
		}
	})
	for range s.workers {
		rescue.Go(func() {
			cpu := graph.NewCPU(1)
			defer cpu.Close() //nolint:errcheck // nothing is held
			for j := range jobs {
				out, err := s.checks[j.of].run(cpu, kernel.F64, 1)
				j.out <- reference{j.of, out, err}
			}
		})
	}
	return ready
}

func (s *selfChecker) runAll(ctx context.Context, on graph.Machine) error {
	s.report.Device = on.Name()
	p := on.Precision()
	ctx, stop := context.WithCancel(ctx)
	ready := s.missing(ctx, p)
	defer func() {
		stop()
		for out := range ready { // no reference is computed any more
			<-out
		}
	}()
	for i, c := range s.checks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !c.runsIn(p) {
			continue
		}
		if s.references[i] == nil {
			r := <-<-ready
			if r.err != nil {
				return fmt.Errorf("reference of %s %s: %w", c.kernel, c.name, r.err)
			}
			s.references[r.of] = r.out
		}
		s.compare(on, c, s.references[i])
	}
	if p.FrozenFP8() {
		return nil
	}
	for _, d := range loadTypes {
		for _, kind := range loadKinds(d) {
			if err := ctx.Err(); err != nil {
				return err
			}
			s.load(ctx, on, d, kind)
		}
	}
	m, ok := on.(nativeGEMM)
	if !ok || p == kernel.PrecisionTF32 {
		return nil
	}
	if !m.UseNativeGEMM() { // they were just checked
		s.pending = append(s.pending, &Result{Precision: on.Precision().String(), Kernel: "matmul", Case: "by cuBLASLt",
			Status: StatusSkip,
			Reason: "the library was not found (trainer doctor says where it was looked for); GEMMs run on native " +
				"kernels"})
		return nil
	}
	for i, c := range s.checks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.gemm {
			c.name += ", native GEMM"
			s.compare(on, c, s.references[i])
		}
	}
	return nil
}

// compare runs a check and has its results judged; the report gets them when the machine has done all.
func (s *selfChecker) compare(on graph.Machine, c check, want [][]float64) {
	precision := on.Precision()
	r := &Result{Precision: precision.String(), Kernel: c.kernel, Case: c.name, Status: StatusSkip,
		Reason: "not run: the device was lost in " + s.lost}
	s.pending = append(s.pending, r)
	if s.lost != "" {
		return
	}
	got, again, err := c.results(on)
	if lostDevice(err) {
		s.lost = c.kernel + " " + c.name
	}
	s.judging <- struct{}{}
	s.judged.Go(rescue.Wrap(func() {
		*r = c.compare(formats[precision], got, again, want, err)
		r.Precision = precision.String()
		<-s.judging
	}))
}

func (s *selfChecker) load(ctx context.Context, on graph.Machine, d weights.DType, kind loadKind) {
	name := fmt.Sprintf("%v, %v", d, kind)
	results, err := []Result{{Kernel: "load", Case: name, Status: StatusSkip,
		Reason: "not run: the device was lost in " + s.lost}}, error(nil)
	if s.lost == "" {
		if results, err = checkLoad(ctx, on, d, kind); lostDevice(err) {
			s.lost = "load " + name
		}
	}
	for _, r := range results {
		r.Precision = on.Precision().String()
		s.pending = append(s.pending, &r)
	}
}

// lostDevice tells whether no work can follow an error.
func lostDevice(err error) bool { return errors.Is(err, graph.ErrDeviceLost) }

// results runs a check twice, and with computed inputs where an output may take their memory: again, else nil.
func (c check) results(on graph.Machine) (got, again [][]float64, err error) {
	if got, err = c.run(on, kernel.F32, 2); err != nil || c.inPlace == nil {
		return got, nil, err
	}
	if again, err = c.computed().run(on, kernel.F32, 1); err != nil {
		err = fmt.Errorf("in place: %w", err)
	}
	return got, again, err
}

// compare holds results, or the error of computing them, to their limits.
func (c check) compare(f format, got, again, want [][]float64, err error) Result {
	if err != nil {
		return Result{Kernel: c.kernel, Case: c.name, Status: StatusFail, Reason: err.Error()}
	}
	r := c.judge(f, got, want)
	for i := range again {
		if r.Status == StatusPass && !slices.Equal(got[i], again[i]) {
			r.Status, r.Reason = StatusFail, fmt.Sprintf("output %d is different in its input's memory", i)
		}
	}
	return r
}

// judge holds results to their limits.
func (c check) judge(f format, got, want [][]float64) Result {
	r := Result{Kernel: c.kernel, Case: c.name, Status: StatusPass}
	share := -1.0
	for i, l := range c.limits(f, want) {
		e := relativeError(got[i], want[i])
		worst, at := largestError(got[i], want[i])
		off, limit := e, l.norm
		if math.IsInf(limit, 0) { // the numbers alone are held to a limit
			off, limit = worst, l.element
		}
		if s := off / max(limit, 1e-30); s > share || e != e {
			share, r.Error, r.Limit = s, off, limit
		}
		switch {
		case !(e <= l.norm):
			r.Error, r.Limit, r.Status = min(e, math.MaxFloat64), l.norm, StatusFail // JSON has no infinity
			r.Reason = fmt.Sprintf("output %d: error %.3g, limit %.3g; element %d of %d is %v, want %v", i, e, l.norm,
				at, len(want[i]), got[i][at], want[i][at])
			return r
		case !(worst <= l.element):
			r.Status = StatusFail
			r.Reason = fmt.Sprintf("output %d: element %d of %d is %v, want %v: %.3g apart, limit %.3g", i, at,
				len(want[i]), got[i][at], want[i][at], worst, l.element)
			return r
		}
		for j := range want[i] {
			if c.bounds[i] == masked && (got[i][j] == 0) != (want[i][j] == 0) {
				r.Status, r.Reason = StatusFail, fmt.Sprintf("output %d: element %d is %v, want %v: another mask", i, j,
					got[i][j], want[i][j])
				return r
			}
		}
	}
	return r
}

// relativeError returns |got - want| / |want|, or |got| where nothing is wanted; infinite for a result that is no
// number.
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

// largestError returns the largest |got - want| of one element, NaN if there is one.
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
