//go:build gpu && linux

package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestRangesReachATool: a tool in NVTX's sense sees the ranges, long names cut; without one nothing happens.
func TestRangesReachATool(t *testing.T) {
	if os.Getenv("TRAINER_TEST_RANGES") != "" {
		runtime.LockOSThread()
		Ranges{}.Push("step 7")
		Ranges{}.Push(strings.Repeat("x", 200))
		Ranges{}.Pop()
		Ranges{}.Pop()
		return
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler to build a tool with")
	}
	tool := filepath.Join(t.TempDir(), "tool.so")
	flags := append(strings.Fields(os.Getenv("CGO_CFLAGS")), "-shared", "-fPIC", "-o", tool,
		filepath.Join("testdata", "nvtx_tool.c"))
	if out, err := exec.Command(compiler, flags...).CombinedOutput(); err != nil {
		t.Skipf("the tool needs NVTX's headers, as scripts/cuda.sh sets CGO_CFLAGS: %v: %s", err, out)
	}
	for _, with := range []bool{false, true} {
		c := exec.Command(os.Args[0], "-test.run=^TestRangesReachATool$")
		c.Env = append(os.Environ(), "TRAINER_TEST_RANGES=1")
		want := ""
		if with {
			c.Env = append(c.Env, "NVTX_INJECTION64_PATH="+tool)
			want = "push step 7\npush " + strings.Repeat("x", 127) + "\npop\npop\n"
		}
		var said strings.Builder
		c.Stderr = &said
		if err := c.Run(); err != nil || said.String() != want {
			t.Errorf("with a tool: %v: %v: %q, want %q", with, err, said.String(), want)
		}
	}
}
