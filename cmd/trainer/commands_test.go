package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/train/objective"
)

// Every command's help has examples, and what they show can be given.
func TestHelpHasExamples(t *testing.T) {
	root := newRoot(&console{})
	eachCommand(root, func(cmd *cobra.Command) {
		if cmd.Name() == "help" {
			return
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for _, line := range strings.Split(cmd.Example, "\n") {
			_, line, ok := strings.Cut(line, "trainer ")
			if !ok || cmd.HasParent() && cmd.Parent().Name() == "completion" {
				continue
			}
			line, _, _ = strings.Cut(line, " > ")
			words := strings.Fields(line)
			found, rest, err := newRoot(&console{}).Find(words)
			if err != nil || !strings.HasPrefix(found.CommandPath(),
				strings.SplitAfterN(cmd.CommandPath(), " ", 2)[0]) {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
				continue
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			}
		}
	})
	dir := t.TempDir()
	if code, out, _ := trainer(t, dir, nil, "", "--help"); code != 0 || !strings.Contains(out, "\n  completion ") ||
		!strings.Contains(out, "Examples:\n") {
		t.Errorf("exit code %d, no completion or no examples in\n%s", code, out)
	}
	if code, out, _ := trainer(t, dir, nil, "", "completion", "bash", "--help"); code != 0 ||
		!strings.Contains(out, "source <(trainer completion bash)") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, _, errOut := trainer(t, dir, nil, "", "completion", "fsh"); code != 2 ||
		!strings.Contains(errOut, "the nearest is fish") {
		t.Errorf("a shell that is none: exit code %d\n%s", code, errOut)
	}
	if code, out, _ := trainer(t, dir, nil, "", "__complete", "train", "--config", "cpu"); code != 0 ||
		!strings.Contains(out, "cpu_stories_quick\n") {
		t.Errorf("completion of --config: exit code %d\n%s", code, out)
	}
}

func TestVersion(t *testing.T) {
	dir := t.TempDir()
	_, want, _ := trainer(t, dir, nil, "", "version")
	if code, out, errOut := trainer(t, dir, nil, "", "--version"); code != 0 || out != want || want == "" {
		t.Errorf("--version: exit code %d, %q, want %q\n%s", code, out, want, errOut)
	}
	_, out, _ := trainer(t, dir, nil, "", "version", "--json")
	var v map[string]any
	if err := json.Unmarshal([]byte(out), &v); err != nil || v["commit"] == nil || v["dirty"] == nil ||
		v["version"] == nil {
		t.Errorf("version --json: %v\n%s", err, out)
	}
}

// A configuration can be given without --config, once.
func TestConfigurationAsWord(t *testing.T) {
	dir := t.TempDir()
	if code, _, errOut := trainer(t, dir, nil, "", "configs", "write", "cpu_stories_quick", "run.yaml"); code != 0 {
		t.Fatal(errOut)
	}
	for _, args := range [][]string{{"train", "run.yaml"}, {"run.yaml"}} {
		args = append(args, "--set", "output_dir=out-"+args[0], "--quiet")
		if code, out, errOut := trainer(t, dir, nil, "", append(args, small[2:]...)...); code != 0 ||
			!strings.Contains(out, "steps    3 of 3\n") {
			t.Errorf("%v: exit code %d, %s%s", args, code, out, errOut)
		}
	}
	for _, args := range [][]string{{"plan", "run.yaml"}, {"inspect", "data", "run.yaml"}} {
		if code, _, errOut := trainer(t, dir, nil, "", args...); code != 0 {
			t.Errorf("%v: exit code %d, %s", args, code, errOut)
		}
	}
	if code, _, errOut := trainer(t, dir, nil, "", "train", "run.yaml", "--config", "b c.yaml"); code != 2 ||
		errOut != "trainer: trainer train takes one configuration, got --config 'b c.yaml' and run.yaml\n" {
		t.Errorf("two configurations: exit code %d, %s", code, errOut)
	}
}

// What --show prints is a configuration: every key, nothing else, and the same when it is read again.
func TestShowIsAConfiguration(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"adapter: qlora\n", "adapter: lora\nlora: {rank_pattern: {a.b: 3}}\nvram: 1GB\n"} {
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(least+text), 0o644); err != nil {
			t.Fatal(err)
		}
		code, shown, errOut := trainer(t, dir, nil, "", "validate", "a.yaml", "--show")
		if code != 0 || !strings.HasPrefix(shown, "base_model: m\n") ||
			!strings.Contains(errOut, "problems in a.yaml; the configuration itself is right\n") {
			t.Fatalf("exit code %d, stdout\n%s\nstderr\n%s", code, shown, errOut)
		}
		for _, k := range config.Root.Leaves() {
			section, _, _ := strings.Cut(k.Path, ".")
			if section == "quantization" && strings.Contains(text, "adapter: lora") ||
				objective.Objectives[section] != nil || section == "embedding" {
				if !strings.Contains(shown, "\n"+section+": null\n") {
					t.Errorf("%s is not null in\n%s", section, shown)
				}
				continue
			}
			if !regexp.MustCompile(`(?m)^ *` + k.Name + `:`).MatchString(shown) {
				t.Errorf("%s is not in\n%s", k.Path, shown)
			}
		}
		if !reflect.DeepEqual(merged(t, shown), merged(t, least+text)) {
			t.Errorf("another configuration is shown:\n%s", shown)
		}
		if err := os.WriteFile(filepath.Join(dir, "b.yaml"), []byte(shown), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, again, _ := trainer(t, dir, nil, "", "validate", "b.yaml", "--show"); again != shown {
			t.Errorf("shown again:\n%s\nwas\n%s", again, shown)
		}
	}
}

// A leading ~ is the home folder wherever a path is read.
func TestHome(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	env := []string{"HOME=" + home, "HF_HOME=" + home}
	text := strings.NewReplacer("base_model: m", "base_model: ~/m", "path: d.jsonl",
		"path: ~/d.jsonl, val_path: ~/v.jsonl, cache_dir: ~/c", "output_dir: out", "output_dir: ~/o").Replace(least) +
		"lora: {init_from: ~/a}\ntraining: {resume: ~/r}\n"
	if err := os.WriteFile(filepath.Join(home, "run.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	code, shown, errOut := trainer(t, dir, env, "", "validate", "--config", "~/run.yaml", "--show")
	for _, want := range []string{"base_model: H/m\n", "  path: H/d.jsonl\n", "  val_path: H/v.jsonl\n",
		"  cache_dir: H/c\n", "output_dir: H/o\n", "  init_from: H/a\n", "  resume: H/r\n"} {
		if !strings.Contains(shown, strings.ReplaceAll(want, "H", home)) {
			t.Errorf("exit code %d: no %q in\n%s%s", code, want, shown, errOut)
		}
	}
	for _, args := range [][]string{
		{"generate", "--prompt", "x", "--model", "~/m"}, {"inspect", "model", "~/m"},
		{"merge", "--model", "embedded:stories260K", "--out", "o", "--adapter", "~/m"},
		{"export", "--format", "gguf", "--model", "embedded:stories260K", "--out", "~/m/o"},
		{"inspect", "tokens", "--tokenizer", "embedded:stories260K", "--text-file", "~/m"}, {"train", "~/m"},
		{"train", "~/run.yaml", "--resume", "~/m"},
		{"eval", "cpu_stories_quick", "--adapter", "~/m"}, {"validate", "cpu_stories_quick", "--config", "~/m"},
	} {
		if _, _, errOut := trainer(t, dir, env, "", args...); !strings.Contains(errOut, home+"/m") {
			t.Errorf("%v: %s", args, errOut)
		}
	}
	if code, _, errOut := trainer(t, dir, env, "", "configs", "write", "cpu_stories_quick", "~/new.yaml"); code != 0 {
		t.Error(errOut)
	}
	if code, _, errOut := trainer(t, dir, env, "", "doctor", "--emit-json", "~/doctor.json"); code != 0 {
		t.Error(errOut)
	}
	for _, name := range []string{"new.yaml", "doctor.json"} {
		if _, err := os.Stat(filepath.Join(home, name)); err != nil {
			t.Error(err)
		}
	}
}

// A result that can't be written is a failure, in every command that prints one.
func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full: ", err)
	}
	defer full.Close()
	dir := t.TempDir()
	if code, _, errOut := trainer(t, dir, nil, "", small...); code != 0 {
		t.Fatal(errOut)
	}
	model := []string{"--model", "embedded:stories260K"}
	for _, args := range [][]string{
		append([]string{"generate", "--prompt", "Once", "--max-tokens", "3"}, model...),
		append([]string{"generate", "--prompt", "Once", "--max-tokens", "3", "--json"}, model...),
		append([]string{"--set", "output_dir=second"}, small...),
		append([]string{"--json", "--set", "output_dir=third"}, small...),
		append([]string{"merge", "--adapter", "runs/cpu_stories_quick", "--out", "merged"}, model...),
		append([]string{"export", "--format", "gguf", "--out", "m.gguf"}, model...),
		{"eval", "--config", "cpu_stories_quick", "--set", "dataset.max_length=96"}, {"version"}, {"--version"},
		{"--help"}, {"doctor"}, {"configs"},
		{"configs", "write", "cpu_stories_quick", "-"}, {"validate", "cpu_stories_quick"},
		{"validate", "cpu_stories_quick", "--show"},
		{"validate", "cpu_stories_quick", "--json"}, {"plan", "--config", "cpu_stories_quick"},
		{"inspect", "model", "embedded:stories260K"},
		{"inspect", "data", "--config", "cpu_stories_quick"}, {"completion", "bash"},
	} {
		cmd := program(dir, args...)
		var errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &errOut
		cmd.Run() //nolint:errcheck // the exit code tells
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(errOut.String(),
			"no space left on device") {
			t.Errorf("%v: exit code %d, want 1; %s", args, code, errOut.String())
		}
	}
}

// --resume of what is not there says which checkpoints are.
func TestResumeOfNothing(t *testing.T) {
	dir := t.TempDir()
	resume := append(small[:len(small):len(small)], "--resume", "nope")
	if code, _, errOut := trainer(t, dir, nil, "", resume...); code != 2 || errOut != "trainer: --resume nope: there "+
		"is no such folder, and output_dir runs/cpu_stories_quick holds no checkpoint; leave it out to begin a new "+
		"run\n" {
		t.Errorf("exit code %d, %s", code, errOut)
	}
	if code, _, errOut := trainer(t, dir, nil, "", append(small[:len(small):len(small)], "--set",
		"training.save_steps=2")...); code != 0 {
		t.Fatal(errOut)
	}
	list := "choose from runs/cpu_stories_quick/checkpoint-2, runs/cpu_stories_quick/checkpoint-3, or auto for the " +
		"newest\n"
	if code, _, errOut := trainer(t, dir, nil, "", resume...); code != 2 || errOut != "trainer: --resume nope: there "+
		"is no such folder; "+list {
		t.Errorf("exit code %d, %s", code, errOut)
	}
	if code, _, errOut := trainer(t, dir, nil, "", append(small[:len(small):len(small)], "--set",
		"training.resume=nope")...); code != 2 || errOut != "trainer: training.resume: nope: there is no such folder; "+
		list {
		t.Errorf("exit code %d, %s", code, errOut)
	}
}

// --download asks the hub, which does not have the model; without it the message names the flag.
func TestDownload(t *testing.T) {
	dir := t.TempDir()
	hub := httptest.NewServer(http.NotFoundHandler())
	defer hub.Close()
	env := []string{"HF_HUB_OFFLINE=0", "HF_ENDPOINT=" + hub.URL}
	if code, _, errOut := trainer(t, dir, env, "", "inspect", "model", "org/none"); code != 3 ||
		!strings.Contains(errOut, "\npass --download, fetch it with `trainer download org/none`, or give a folder\n") {
		t.Errorf("exit code %d, %s", code, errOut)
	}
	if code, _, errOut := trainer(t, dir, env, "", "inspect", "model", "org/none", "--download"); code != 3 ||
		!strings.HasPrefix(errOut, "trainer: download model org/none: ") {
		t.Errorf("exit code %d, %s", code, errOut)
	}
}

// The summary says which loss is which, and the last line of progress has the loss that metrics.jsonl has.
func TestLossesAgree(t *testing.T) {
	dir := t.TempDir()
	code, out, errOut := trainer(t, dir, nil, "", append(small[:len(small):len(small)], "--set",
		"training.logging_steps=2", "--set", "training.max_steps=4")...)
	if code != 0 ||
		!regexp.MustCompile(`(?m)^loss     \d\.\d{4} first step, \d\.\d{4} last step, \d\.\d{4} mean of the run$`).
			MatchString(out) {
		t.Fatalf("exit code %d\n%s%s", code, out, errOut)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "runs/cpu_stories_quick/metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []struct {
		Step  int      `json:"step"`
		Loss  *float64 `json:"loss"`
		Train *float64 `json:"train_loss"`
	}
	for dec := json.NewDecoder(bytes.NewReader(raw)); dec.More(); {
		lines = append(lines, struct {
			Step  int      `json:"step"`
			Loss  *float64 `json:"loss"`
			Train *float64 `json:"train_loss"`
		}{})
		if err := dec.Decode(&lines[len(lines)-1]); err != nil {
			t.Fatal(err)
		}
	}
	if len(lines) != 3 || lines[2].Train == nil {
		t.Fatalf("metrics.jsonl is\n%s", raw)
	}
	for _, m := range lines[:2] {
		if want := fmt.Sprintf("step %d/4  loss %.4f (mean of 2 steps)", m.Step, *m.Loss); !strings.Contains(errOut,
			want) {
			t.Errorf("no %q in\n%s", want, errOut)
		}
	}
	if want := fmt.Sprintf(", %.4f mean of the run\n", *lines[2].Train); !strings.Contains(out, want) {
		t.Errorf("no %q in\n%s", want, out)
	}
}

// Under nohup a closed terminal does not stop a run.
func TestNohup(t *testing.T) {
	if _, err := exec.LookPath("nohup"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("nohup", append([]string{os.Args[0]}, append(small, "--set", "training.max_steps=150", "--set",
		"training.logging_steps=1")...)...)
	cmd.Dir, cmd.Env = dir, program(dir).Env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	metrics := filepath.Join(dir, "runs/cpu_stories_quick/metrics.jsonl")
	for range 5000 {
		if raw, _ := os.ReadFile(metrics); len(raw) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "runs/cpu_stories_quick/adapter_model.safetensors")); err != nil {
		t.Error(err)
	}
}

func TestBuild(t *testing.T) {
	info := func(version string, settings ...string) *debug.BuildInfo {
		b := &debug.BuildInfo{}
		b.Main.Version = version
		for i := 0; i < len(settings); i += 2 {
			b.Settings = append(b.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return b
	}
	for want, got := range map[build]*debug.BuildInfo{
		{Version: "devel"}: info("(devel)"),
		{Version: "v1.2.3", Commit: "abc"}: info("v1.2.3", "vcs.revision", "abc",
			"vcs.modified", "false"),
		{Version: "abc+changes", Commit: "abc", Dirty: true}: info("(devel)", "vcs.revision", "abc",
			"vcs.modified", "true"),
		{Version: "v1", At: time.Unix(60, 0).UTC()}: info("v1", "vcs.time", "1970-01-01T00:01:00Z"),
	} {
		if b := buildOf(got); b != want {
			t.Errorf("%+v, want %+v", b, want)
		}
	}
}

// TestDevicesFlag: 0,2 is a list, other words are taken as they are.
func TestDevicesFlag(t *testing.T) {
	if got := deviceList("0,2") + deviceList("[1]") + deviceList("all") + deviceList("3"); got != "[0,2][1]all3" {
		t.Errorf("--devices gives %s", got)
	}
}
