package selfcheck

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
)

// TestMain lets garbage grow: forced collections visit the references of thousands of checks.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// everyCheck names the variable that lets TestSelfCheckOfCPU run checks of all sizes; .ci/run sets it.
const everyCheck = "TIERLORA_EVERY_CHECK"

// smallChecks returns the checks of few numbers, and of each kernel at least the two with the fewest.
func smallChecks(all []check) []check {
	const few = 4096
	numbers := func(c check) (n int) {
		for _, x := range c.in {
			n += len(x.values)
		}
		return n
	}
	least := map[string][]int{}
	for _, c := range all {
		least[c.kernel] = append(least[c.kernel], numbers(c))
	}
	for _, n := range least {
		slices.Sort(n)
	}
	var small []check
	for _, c := range all {
		n := least[c.kernel]
		if numbers(c) <= max(few, n[min(1, len(n)-1)]) {
			small = append(small, c)
		}
	}
	return small
}

// TestSelfCheckOfCPU holds the CPU's float32 to the GPU's limits in fp32.
func TestSelfCheckOfCPU(t *testing.T) {
	s := newSelfChecker(session.Env{})
	t.Run("large checks", func(t *testing.T) {
		if all := s.checks; os.Getenv(everyCheck) == "" {
			s.checks = smallChecks(all)
			t.Skipf("%d of %d checks are left out: %s is not set", len(all)-len(s.checks), len(all), everyCheck)
		}
	})
	if err := s.run(context.Background(), graph.NewCPU(1)); err != nil {
		t.Fatal(err)
	}
	r := s.report
	for _, c := range r.Checks {
		if c.Status != StatusPass {
			t.Errorf("%s %s: %s: %s", c.Kernel, c.Case, c.Status, c.Reason)
		}
	}
	t.Logf("%d checks", len(r.Checks))
	if _, err := json.Marshal(r); err != nil {
		t.Errorf("the report as JSON: %v", err)
	}
	if r.Passed != len(r.Checks) || r.Passed < 500 {
		t.Errorf("%d of %d checks passed", r.Passed, len(r.Checks))
	}
}

// TestSelfCheckSeesFaults changes one element of a right result.
func TestSelfCheckSeesFaults(t *testing.T) {
	on := graph.NewCPU(0)
	for _, c := range slices.Concat(elementChecks(), gemmChecks()[:40], attentionChecks()[:20], lossChecks()[:2],
		updateChecks()) {
		want, err := c.run(on, kernel.F64, 1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.run(on, kernel.F32, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			at := len(got[i]) / 2
			for _, wrong := range []float64{got[i][at] + math.Abs(got[i][at]) + 1, math.NaN()} {
				kept := got[i][at]
				got[i][at] = wrong
				if r := c.judge(formats[kernel.PrecisionBF16], got, want); r.Status != StatusFail || r.Reason == "" {
					t.Errorf("%s %s: element %d of output %d is %v, not %v: %+v", c.kernel, c.name, at, i, wrong, kept,
						r)
				}
				got[i][at] = kept
			}
		}
	}
}

// TestSelfCheckOfEveryKernel looks for kernels with a GPU body that no check applies.
func TestSelfCheckOfEveryKernel(t *testing.T) {
	checks := ""
	own, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range own {
		if !strings.HasSuffix(f, "_test.go") {
			checks += string(golden.ReadFile(t, f))
		}
	}
	bodies, err := filepath.Glob(filepath.Join(golden.Root(t), "kernel", "*_gpu.go"))
	if err != nil || len(bodies) < 10 {
		t.Fatalf("bodies %v, %v", bodies, err)
	}
	for _, f := range bodies {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func \((?:\w+ )?(\w+)\) GPU\(`).FindAllStringSubmatch(string(text),
			-1) {
			if !regexp.MustCompile(`kernel\.` + m[1] + `[{(]`).MatchString(checks) {
				t.Errorf("kernel.%s has a GPU body and no check", m[1])
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^func \((?:\w+ )?(\w+)\) bindGPU\(`).FindAllStringSubmatch(
			string(text), -1) {
			if !strings.Contains(checks, "kernel.Onto[kernel."+m[1]+"]{") {
				t.Errorf("kernel.Onto[kernel.%s] has a GPU body and no check", m[1])
			}
		}
	}
}

// TestNoReferenceIsRounding: what the balance of experts is held to is a gradient, not what is left of sums that
// cancel. It is zero where all experts are chosen as often.
func TestNoReferenceIsRounding(t *testing.T) {
	for _, c := range expertChecks() {
		if c.kernel != "moe_balance" {
			continue
		}
		want, err := c.run(graph.NewCPU(0), kernel.F64, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			if largest, _ := largestError(w, make([]float64, len(w))); largest > 0 && largest < 1e-9 {
				t.Errorf("%s: output %d is %g at most", c.name, i, largest)
			}
		}
	}
}

// TestPlainShortConv compares the plain short convolution, without rounding, with the reference.
func TestPlainShortConv(t *testing.T) {
	exact, compared := format{round: func(x float64) float64 { return x }}, 0
	for _, c := range convChecks() {
		if c.kernel != "short_conv" && c.kernel != "short_conv_grad" {
			continue
		}
		want, err := c.run(graph.NewCPU(0), kernel.F64, 1)
		if err != nil {
			t.Fatal(err)
		}
		in := make([][]float64, len(c.in))
		for i := range in {
			in[i] = c.in[i].values
		}
		if e := relativeError(c.plain(exact, in)[0], want[0]); !(e < 1e-14) {
			t.Errorf("%s, %s: off by %g", c.kernel, c.name, e)
		}
		compared++
	}
	if compared != 80 {
		t.Errorf("%d compared", compared)
	}
}
