package lint

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/internal/golden"
)

type workflow struct {
	Permissions map[string]string `yaml:"permissions"`
	Jobs        map[string]struct {
		RunsOn  yaml.Node `yaml:"runs-on"`
		Minutes int       `yaml:"timeout-minutes"`
		Steps   []struct {
			Uses string            `yaml:"uses"`
			Run  string            `yaml:"run"`
			With map[string]string `yaml:"with"`
		} `yaml:"steps"`
		Container struct {
			Image string `yaml:"image"`
		} `yaml:"container"`
	} `yaml:"jobs"`
}

// workflows reads .github/workflows.
func workflows(t *testing.T) (parsed map[string]workflow, texts map[string]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(golden.Root(t), ".github", "workflows", "*.yml"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%d workflows, want 3 (%v)", len(files), err)
	}
	parsed, texts = map[string]workflow{}, map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var w workflow
		if err := yaml.Unmarshal(data, &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		parsed[filepath.Base(file)], texts[filepath.Base(file)] = w, string(data)
	}
	return parsed, texts
}

// dryRuns is every command of the workflows, with what is run of it here: a form that needs no GPU, network or credentials.
// A step that is not listed fails, and so does one that is no workflow's. "" = nothing, for the reason beside it.
var dryRuns = map[string]string{
	".ci/run":                      "bash -n .ci/run", // it runs this test
	"scripts/platforms.sh build":   "scripts/platforms.sh list && bash -n scripts/platforms.sh",
	"scripts/platforms.sh vet":     "scripts/platforms.sh list",
	"scripts/smoke.sh":             "bash -n scripts/smoke.sh",
	"scripts/image.sh cpu --check": "DRY_RUN=1 scripts/image.sh cpu --check",
	"make gpu":                     "make -n gpu",
	"chmod +x trainer":             "",
	"scripts/nightly.sh doctor":    "DRY_RUN=1 scripts/nightly.sh doctor",
	`scripts/nightly.sh "$TIER"`:   `TIER=quick; DRY_RUN=1 scripts/nightly.sh "$TIER"`,
	`python3 scripts/nightly_issue.py reports --post --run "$RUN_URL"`:                            "bash -n scripts/nightly.sh", // TestNightlyScript runs it
	"sudo apt-get install -y --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross": "",
	"scripts/release.sh snapshot":                   "DRY_RUN=1 scripts/release.sh snapshot",
	"scripts/release.sh publish":                    "DRY_RUN=1 scripts/release.sh publish",
	`scripts/release_images.sh "$IMAGE" "$VERSION"`: `IMAGE=example.org/Tier/lora VERSION=v1.2.3; DRY_RUN=1 scripts/release_images.sh "$IMAGE" "$VERSION"`,
}

func TestWorkflowSteps(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash: the steps can't run")
	}
	all, _ := workflows(t)
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, job := range all[name].Jobs {
			for _, step := range job.Steps {
				if step.Run == "" {
					continue
				}
				command := strings.TrimSpace(step.Run)
				if _, ok := dryRuns[command]; !ok {
					t.Errorf("%s runs %q, which is not listed in dryRuns: make it a script that a person can run", name, command)
				}
				if strings.Contains(command, "${{") {
					t.Errorf("%s: %q holds an expression, whose text would be run; give it as a variable", name, command)
				}
				seen[command] = true
			}
		}
	}
	work := t.TempDir()
	for _, command := range slices.Sorted(maps.Keys(dryRuns)) {
		if !seen[command] {
			t.Errorf("no workflow runs %q", command)
		}
		first, _, _ := strings.Cut(command, " ")
		if strings.Contains(first, "/") {
			if info, err := os.Stat(filepath.Join(golden.Root(t), first)); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("%s is no program (%v)", first, err)
			}
		}
		if dryRuns[command] == "" {
			continue
		}
		cmd := exec.Command(bash, "-euc", dryRuns[command])
		cmd.Dir = golden.Root(t)
		cmd.Env = append(os.Environ(), "TRAINER=./trainer", "REPORTS="+filepath.Join(work, "reports"), "KEPT="+filepath.Join(work, "kept"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", dryRuns[command], err, out)
		}
	}
}

var (
	pinned = regexp.MustCompile(`^actions/[a-z/-]+@[0-9a-f]{40}$`)
	uses   = regexp.MustCompile(`(?m)uses: (.*)$`)
	said   = regexp.MustCompile(`^\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	image  = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)
)

// TestWorkflowsAreBounded: nothing moves under a workflow, it may do no more than it must, and it ends.
func TestWorkflowsAreBounded(t *testing.T) {
	all, texts := workflows(t)
	goVersions := map[string]bool{}
	commits := map[string]string{}
	for name, w := range all {
		if !maps.Equal(w.Permissions, map[string]string{"contents": "read"}) {
			t.Errorf("%s: permissions %v; jobs that need more say so themselves", name, w.Permissions)
		}
		if !strings.Contains(texts[name], "\nconcurrency:\n") {
			t.Errorf("%s has no concurrency group", name)
		}
		for id, job := range w.Jobs {
			if job.Minutes == 0 {
				t.Errorf("%s: job %s has no time limit", name, id)
			}
			if job.Container.Image != "" && !image.MatchString(job.Container.Image) {
				t.Errorf("%s: job %s: container %s has no digest", name, id, job.Container.Image)
			}
			for _, step := range job.Steps {
				action, _, _ := strings.Cut(step.Uses, "@")
				switch {
				case step.Uses == "":
				case !pinned.MatchString(step.Uses):
					t.Errorf("%s: %s is not one of GitHub's own actions at a commit", name, step.Uses)
				case commits[action] != "" && commits[action] != step.Uses:
					t.Errorf("%s: %s, elsewhere %s", name, step.Uses, commits[action])
				default:
					commits[action] = step.Uses
				}
				if action == "actions/checkout" && step.With["persist-credentials"] != "false" {
					t.Errorf("%s: job %s leaves the token in the checkout", name, id)
				}
				if v := step.With["go-version"]; v != "" {
					goVersions[v] = true
				}
			}
		}
		for _, m := range uses.FindAllStringSubmatch(texts[name], -1) {
			if !said.MatchString(m[1]) {
				t.Errorf("%s: %s: write the version after the commit", name, m[1])
			}
		}
	}
	if len(goVersions) != 1 {
		t.Errorf("the workflows name Go %v, want one version", slices.Sorted(maps.Keys(goVersions)))
	}
	for _, m := range regexp.MustCompile(`(?m)^ARG \w+_IMAGE=(\S+)$`).FindAllStringSubmatch(readRoot(t, "Dockerfile"), -1) {
		if !image.MatchString(m[1]) {
			t.Errorf("Dockerfile: %s has no digest", m[1])
		}
	}
	if strings.Contains(texts["gpu-nightly.yml"], "pull_request") {
		t.Error("gpu-nightly.yml runs for pull requests: a stranger's code on our machine")
	}
}

func readRoot(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(golden.Root(t), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// What the program is built of is in the images' context. -e: kernels may not be compiled here.
func TestDockerContext(t *testing.T) {
	ignore := "\n" + readRoot(t, ".dockerignore")
	cmd := exec.Command("go", "list", "-e", "-deps", "-tags", "gpu", "-f", "{{.ImportPath}}", "./cmd/trainer")
	cmd.Dir = golden.Root(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		if ours, ok := strings.CutPrefix(path, module); ok {
			if top, _, _ := strings.Cut(ours, "/"); !strings.Contains(ignore, "\n!"+top+"\n") {
				t.Errorf(".dockerignore leaves out %s, which the program needs", top)
			}
		}
	}
}

// TestReleaseTools: goreleaser starts a tool of that name, unlike arguments without filling in a template.
func TestReleaseTools(t *testing.T) {
	var config struct {
		SBOMs []struct{ Cmd string } `yaml:"sboms"`
		Signs []struct{ Cmd string } `yaml:"signs"`
	}
	data, err := os.ReadFile(filepath.Join(golden.Root(t), ".goreleaser.yaml"))
	if err == nil {
		err = yaml.Unmarshal(data, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(config.SBOMs) != 1 || config.SBOMs[0].Cmd != "syft" || len(config.Signs) != 1 || config.Signs[0].Cmd != "cosign" {
		t.Errorf("%+v: want syft and cosign, which scripts/release.sh puts on PATH", config)
	}
}
