package lint

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// standInTrainer answers as trainer does, from files of its folder: NAME.json is the report of tier NAME, doctor.fails makes
// doctor fail. It writes down how it was called.
const standInTrainer = `#!/bin/sh
here=$(dirname "$0")
echo "$*" >>"$here/calls"
what=$1 name=$2
while [ $# -gt 0 ]; do
	case $1 in --report) report=$2 ;; --emit-json) emit=$2 ;; --compare) ls "$2" >>"$here/compared" ;; esac
	shift
done
if [ "$what" = doctor ]; then
	if [ -e "$here/doctor.says" ]; then cat "$here/doctor.says" >&2; exit 2; fi
	if [ -e "$here/doctor.fails" ]; then cp "$here/doctor.fails" "$emit"; exit 3; fi
	echo '{"findings": []}' >"$emit"
	exit 0
fi
mkdir -p "$report"
cp "$here/$name.json" "$report/report.json"
grep -q '^{"schema": "[^"]*", "status": "pass"' "$here/$name.json"
`

// The nightly script itself, with a program in the place of trainer: doctor first, tiers compared with kept reports, only
// reports that passed are kept, the exit code is the first one, and the text of the issue says what failed.
func TestNightlyScript(t *testing.T) {
	for _, program := range []string{"bash", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("no ", program)
		}
	}
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	write("trainer", standInTrainer, 0o755)
	write("quick.json", `{"schema": "tierlora-tier-report/1", "status": "pass", "tiers": [{"tier": "quick", "status": "pass"}]}`, 0o644)
	write("full.json", `{"schema": "tierlora-tier-report/1", "status": "fail", "command": ["trainer", "tier", "full"],
		"checks": [{"check": "a usable GPU", "status": "pass"}], "machine": {"gpu": "<img src=x> @everyone [a](http://x)"},
		"tiers": [{"tier": "full", "status": "fail", "reason": "loss\n# fell by 3 %", "exit_code": 1,
		"checks": [{"check": "the loss falls", "status": "fail", "detail": "`+"```"+` @team 3 %, want 30 %"}],
		"comparison": {"regressions": ["median step 30 ms, was 20 ms"]}}]}`, 0o644)
	for _, model := range []string{"models/smollm2-135m", "models/llama-2-7b"} {
		if err := os.MkdirAll(filepath.Join(dir, model), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	more := []string{}
	night := func(reports string, words ...string) (int, string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(golden.Root(t), "scripts", "nightly.sh"), words...)
		cmd.Env = append(os.Environ(), "TRAINER="+filepath.Join(dir, "trainer"), "MODELS="+filepath.Join(dir, "models"), "PINS=none",
			"REPORTS="+filepath.Join(dir, reports), "KEPT="+filepath.Join(dir, "kept"), "DRY_RUN=")
		cmd.Env = append(cmd.Env, more...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}

	if code, out := night("first", "quick"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	if kept, _ := filepath.Glob(filepath.Join(dir, "kept", "quick", "*", "report.json")); len(kept) != 1 {
		t.Errorf("%d reports of quick are kept, want 1", len(kept))
	}
	calls := read("calls")
	first, rest, _ := strings.Cut(calls, "\n")
	if !strings.HasPrefix(first, "doctor --cuda --emit-json") || !strings.HasPrefix(rest, "tier quick --check-vram") ||
		!strings.Contains(rest, "--base 135m="+filepath.Join(dir, "models/smollm2-135m")) || strings.Contains(rest, "7b=") {
		t.Errorf("the calls were %s", calls)
	}
	if _, err := os.Stat(filepath.Join(dir, "first", "issue.md")); err == nil {
		t.Error("there is an issue of a night that passed")
	}

	if code, out := night("second", "full", "quick"); code != 1 {
		t.Errorf("exit code %d, want 1: %s", code, out)
	}
	if kept, _ := filepath.Glob(filepath.Join(dir, "kept", "full", "*")); len(kept) != 0 {
		t.Errorf("a report that failed is kept: %v", kept)
	}
	if read("compared") == "" {
		t.Error("quick was compared with nothing, though one report is kept")
	}
	issue := read("second/issue.md")
	for _, want := range []string{"Nightly validation failed: full\n", "`loss # fell by 3 %`", "`''' @team 3 %, want 30 %`", "`median step 30 ms, was 20 ms`", "`trainer tier full`"} {
		if !strings.Contains(issue, want) {
			t.Errorf("the issue lacks %q:\n%s", want, issue)
		}
	}
	for _, line := range strings.Split(issue, "\n") { // what is between backticks is no Markdown
		parts := strings.Split(line, "`")
		for i := 0; i < len(parts); i += 2 {
			if strings.ContainsAny(parts[i], "@<[") {
				t.Errorf("text of the report is Markdown: %s", line)
			}
		}
	}

	write("doctor.fails", `{"findings": [{"severity": "error", "about": "driver", "says": "550.1, pinned 580.2", "remedy": "install it"}],
		"mismatches": [{"key": "driver", "expected": "580.2", "found": "<b>550.1", "remedy": ""}]}`, 0o644)
	write("calls", "", 0o644)
	if code, out := night("third", "quick"); code != 3 || strings.Contains(read("calls"), "tier") {
		t.Errorf("exit code %d, want 3 and no tier; calls %s: %s", code, read("calls"), out)
	}
	write("doctor.fails", `{"gpus": [], "no_gpu_reason": "the @driver is gone", "findings": [{"severity": "note", "about": "no GPU", "says": "runs use the CPU"}]}`, 0o644)
	if code, out := night("fourth", "quick"); code != 3 || !strings.Contains(read("fourth/issue.md"), "Nightly validation failed: doctor\n") || !strings.Contains(read("fourth/issue.md"), "- no GPU: `the @driver is gone`") {
		t.Errorf("a GPU that is gone: exit code %d: %s", code, out)
	}
	if issue := read("third/issue.md"); !strings.Contains(issue, "`550.1, pinned 580.2`") || !strings.Contains(issue, "`<b>550.1`, pinned `580.2`") {
		t.Errorf("the issue does not say what doctor found:\n%s", issue)
	}

	// pins that are not there: doctor ends before it writes a report
	write("doctor.says", "trainer: read pins: open /etc/@x/pins.json: no such file or directory; --refresh-pins writes the file\n", 0o644)
	code, out := night("fifth", "quick")
	issue = read("fifth/issue.md")
	if code != 2 || !strings.Contains(out, "no such file or directory") || !strings.HasPrefix(issue, "Nightly validation failed: doctor\n") ||
		!strings.Contains(issue, "- `trainer: read pins: open /etc/@x/pins.json: no such file or directory; --refresh-pins writes the file`") {
		t.Errorf("exit code %d: %s\n%s", code, out, issue)
	}
	// a program that is not built
	write("make", "#!/bin/sh\necho 'no compiler' >&2; exit 4\n", 0o755)
	more = []string{"TRAINER=", "PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")}
	if code, out := night("sixth", "quick"); code != 4 || !strings.Contains(read("sixth/issue.md"), "Nightly validation failed: build\n") || !strings.Contains(read("sixth/issue.md"), "- `no compiler`") {
		t.Errorf("exit code %d: %s", code, out)
	}

	// a dry run prints what it would do, and touches nothing
	before := tree(t, dir)
	more = []string{"DRY_RUN=1"}
	for _, reports := range []string{"seventh", "first"} {
		code, out := night(reports, "doctor", "quick", "full")
		if code != 0 || !strings.Contains(out, "doctor --cuda --emit-json") || !strings.Contains(out, "tier quick --check-vram") || !strings.Contains(out, "tier full --check-vram") {
			t.Errorf("exit code %d: %s", code, out)
		}
	}
	if after := tree(t, dir); after != before {
		t.Errorf("a dry run changed files:\n%s\nwere\n%s", after, before)
	}
}

// tree lists the files below a folder with their sizes and times.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&b, path, info.Size(), info.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
