package tests

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestProfileScript runs scripts/profile.sh with stand-ins for the program and the tools, which note how they are called.
func TestProfileScript(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	script, dir := filepath.Join(golden.Root(t), "scripts", "profile.sh"), t.TempDir()
	notes := filepath.Join(dir, "notes")
	write := func(name, body string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!"+bash+"\n"+body), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	note := `echo "$(basename "$0") TRAINER_NVTX=$TRAINER_NVTX $*" >>"` + notes + "\"\n"
	gpu := write("gpu", `[ "$1" = version ] && echo "trainer x (gpu build, go, linux/amd64)"; [ "$1" = bench ] && { `+note+`echo '{'; echo '  "queued": 12,'; }; true`)
	without := write("without", `echo "trainer x (cpu-only build, go, linux/amd64)"`)
	broken := write("broken", `[ "$1" = version ] && echo "trainer x (gpu build)" || exit 3`)
	write("nsys", note)
	write("ncu", note+`[ "$NCU" = refused ] && echo "==ERROR== ERR_NVGPUCTRPERM"; true`)
	out := filepath.Join(dir, "out")
	run := func(path string, env []string, args ...string) (text string, code int) {
		t.Helper()
		os.Remove(notes) //nolint:errcheck // of the run before, if any
		c := exec.Command(bash, append([]string{script}, args...)...)
		c.Env = append([]string{"PATH=" + path, "HOME=" + dir}, env...)
		said, err := c.CombinedOutput()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return string(said), exit.ExitCode()
		}
		if err != nil {
			t.Fatal(err)
		}
		called, err := os.ReadFile(notes)
		if err != nil {
			t.Fatal(err)
		}
		return string(called), 0
	}
	system := os.Getenv("PATH")
	with := dir + string(os.PathListSeparator) + system
	for _, c := range []struct {
		path string
		env  []string
		args []string
		code int
		want []string
	}{
		{with, []string{"TRAINER=" + gpu}, []string{"run.yaml", "--steps", "50", "--out", out}, 0, []string{
			"nsys TRAINER_NVTX=calls profile --trace=cuda,nvtx --cuda-graph-trace=node", "gpu bench --config run.yaml --device cuda --steps-alone --warmup 5 --steps 50",
			"nsys TRAINER_NVTX=calls stats", "nvtx_gpu_proj_sum"}},
		{with, []string{"TRAINER=" + gpu}, []string{"llama-2-7b", "nsys", "--graph", "--out", out, "--", "--batch", "4"}, 0, []string{
			"nsys TRAINER_NVTX=1 profile", "bench --shape llama-2-7b --device cuda --steps-alone --warmup 5 --steps 200 --batch 4", "cuda_gpu_kern_sum"}},
		{with, []string{"TRAINER=" + gpu}, []string{"run.yaml", "ncu", "--out", out}, 0, []string{
			"ncu TRAINER_NVTX=calls --target-processes all --clock-control none --kernel-name regex:. --launch-skip 12 --launch-count 40", "--print-summary per-kernel"}},
		{with, []string{"TRAINER=" + gpu}, []string{"run.yaml", "ncu", "--kernels", "rope.*", "--out", out}, 0, []string{"regex:rope.* --launch-skip 0"}},
		{with, []string{"TRAINER=" + gpu, "NCU=refused"}, []string{"run.yaml", "ncu", "--out", out}, 3, []string{"NVreg_RestrictProfilingToAdminUsers=0"}},
		{with, []string{"TRAINER=" + without}, []string{"run.yaml"}, 3, []string{"no GPU kernels"}},
		{with, []string{"TRAINER=" + broken}, []string{"run.yaml"}, 3, []string{"no GPU that a run can use"}},
		{with, []string{"TRAINER=" + filepath.Join(dir, "nowhere")}, []string{"run.yaml"}, 3, []string{"is no program"}},
		{with, nil, nil, 2, []string{"name what to profile"}},
		{with, nil, []string{"run.yaml", "perf"}, 2, []string{"one configuration or shape"}},
		{with, nil, []string{"run.yaml", "--steps", "many"}, 2, []string{"no number of steps"}},
		{with, nil, []string{"run.yaml", "--fast"}, 2, []string{"unknown flag --fast"}},
	} {
		text, code := run(c.path, c.env, c.args...)
		if code != c.code {
			t.Errorf("%q: exit code %d, want %d: %s", c.args, code, c.code, text)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%q: no %q in\n%s", c.args, want, text)
			}
		}
	}
	if _, err := exec.LookPath("nsys"); err != nil {
		if text, code := run(system, []string{"TRAINER=" + gpu}, "run.yaml"); code != 3 || !strings.Contains(text, "nsys is not here") {
			t.Errorf("without nsys: %d, %s", code, text)
		}
	}
}
