package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/selfcheck"
)

func TestSelfcheckWithoutGPU(t *testing.T) {
	if n, _ := graph.GPUs(); n > 0 {
		t.Skip("there is a GPU")
	}
	_, reason := graph.GPUs()
	for _, args := range [][]string{{"selfcheck"}, {"selfcheck", "--json"}} {
		var out, errOut bytes.Buffer
		if code := run(args, strings.NewReader(""), &out, &errOut); code != exitUnfit || out.Len() != 0 ||
			!strings.Contains(errOut.String(), reason) {
			t.Errorf("%v: exit code %d, want %d; %q, %q", args, code, exitUnfit, out.String(), errOut.String())
		}
	}
}

func TestSelfcheckSaysWhatFailed(t *testing.T) {
	var out bytes.Buffer
	err := printSelfcheck(&console{out: &out}, selfcheck.Report{Device: "a device", Passed: 2, Failed: 1, Skipped: 1,
		Duration: 2 * time.Second, Checks: []selfcheck.Result{
			{Precision: "bf16", Kernel: "add", Case: "[1,2]", Status: selfcheck.StatusPass, Error: 1, Limit: 4},
			{Precision: "bf16", Kernel: "add", Case: "[1,3]", Status: selfcheck.StatusPass, Error: 2, Limit: 4},
			{Precision: "bf16", Kernel: "rope", Case: "8 heads", Status: selfcheck.StatusFail, Error: 5, Limit: 4,
				Reason: "output 0: error 5, limit 4"},
			{Precision: "bf16", Kernel: "matmul", Case: "by a library", Status: selfcheck.StatusSkip,
				Reason: "not found"},
		}})
	if err != nil {
		t.Fatal(err)
	}
	want := `fail  bf16 rope 8 heads: output 0: error 5, limit 4
skip  bf16 matmul by a library: not found
bf16 add              2 passed    0 failed    0 skipped   largest error  50% of its limit
bf16 matmul           0 passed    0 failed    1 skipped   largest error   0% of its limit
bf16 rope             0 passed    1 failed    0 skipped   largest error   0% of its limit
a device: 2 passed, 1 failed, 1 skipped in 2.0 s
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
