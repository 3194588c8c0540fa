package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// The test binary is the program when this is set.
const asProgram = "TRAINER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		breakRank()
		main()
	}
	// of tests under nohup: the programs that they start would ignore it too
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	os.Exit(m.Run())
}

// program is a command that runs this program in a folder of its own.
func program(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asProgram+"=1", "HF_HUB_OFFLINE=1", "HF_HOME="+dir)
	return cmd
}

// trainer runs the program to its end.
func trainer(t *testing.T, dir string, env []string, in string, args ...string) (code int, out, errOut string) {
	t.Helper()
	cmd := program(dir, args...)
	var o, e bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &o, &e
	cmd.Env = append(cmd.Env, env...)
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !asExit(err, &exit) {
		t.Fatal(err)
	}
	if strings.ContainsRune(o.String()+e.String(), '\x1b') {
		t.Errorf("%v: escape sequences where no terminal is", args)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// inProcess runs the program to its end in the test's own process, which saves a start: for tests that call it often.
// Such a test can't run in parallel with others.
func inProcess(t *testing.T, dir string, args ...string) (code int, out, errOut string) {
	t.Helper()
	t.Chdir(dir)
	t.Setenv("HF_HUB_OFFLINE", "1")
	t.Setenv("HF_HOME", dir)
	var o, e bytes.Buffer
	code = run(args, strings.NewReader(""), &o, &e)
	if strings.ContainsRune(o.String()+e.String(), '\x1b') {
		t.Errorf("%v: escape sequences where no terminal is", args)
	}
	return code, o.String(), e.String()
}

func asExit(err error, exit **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError)
	*exit = e
	return ok
}

// small is a run of a moment on the embedded model.
var small = []string{"--config", "cpu_stories_quick", "--set", "dataset.max_length=48", "--set", "training.max_steps=3",
	"--set", "training.batch_size=2", "--set", "expect.loss_decrease=0"}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	none := []string{"CUDA_VISIBLE_DEVICES="} // on any machine
	write("bad.yaml", least+"training:\n  lerning_rate: 1e-3\n  batchsize: 2\nmicro_batch_size: 4\n")
	write("cuda.yaml", strings.Replace(least, "m\n", "embedded:stories260K\n", 1)+"device: cuda\n")
	write("nomodel.yaml", strings.Replace(least, "m\n", "org/none\n", 1))
	write("binary.txt", "a\xff")
	for name, c := range map[string]struct {
		args     []string
		env      []string
		code     int
		out, err string // contained
	}{
		"no arguments": {args: nil, code: 0, out: "trainer FILE.yaml and trainer --config FILE are trainer " +
			"train FILE"},
		"help":    {args: []string{"train", "--help"}, code: 0, out: "closed terminal finishes the step"},
		"version": {args: []string{"version"}, code: 0, out: "trainer "},
		"doctor":  {args: []string{"doctor"}, code: 0, out: "GPU"},
		"unknown command": {args: []string{"trian"}, code: 2, err: `trainer: unknown command "trian" for ` +
			`trainer; the nearest is train`},
		"unknown command 2": {args: []string{"inspect", "token"}, code: 2, err: `the nearest is tokens`},
		"unknown flag": {args: []string{"train", "--confg", "x"}, code: 2, err: "unknown flag: --confg; the " +
			"nearest is --config"},
		"flag of another": {args: []string{"generate", "--max-new-tokens", "4"}, code: 2,
			err: "unknown flag: --max-new-tokens; the nearest is --max-tokens"},
		"bad flag value": {args: []string{"train", "--workers", "many"}, code: 2, err: `invalid argument "many"`},
		"negative workers": {args: []string{"train", "--workers", "-1"}, code: 2, err: `invalid argument "-1" for ` +
			`"--workers" flag: -1 CPU threads: must lie in 0 to 1024; 0 = one for each core`},
		"workers too many": {args: []string{"train", "cpu_stories_quick", "--workers", "1000000"}, code: 2,
			err: `"--workers" flag: 1000000 CPU threads: must lie in 0 to 1024`},
		"workers, eval": {args: []string{"eval", "cpu_stories_quick", "--workers", "1025"}, code: 2,
			err: `"--workers" flag: 1025 CPU threads`},
		"workers, generate": {args: []string{"generate", "--workers", "1025"}, code: 2,
			err: `"--workers" flag: 1025 CPU threads`},
		"workers, merge": {args: []string{"merge", "--workers", "1025"}, code: 2,
			err: `"--workers" flag: 1025 CPU threads`},
		"workers, selfcheck": {args: []string{"selfcheck", "--workers", "1025"}, code: 2,
			err: `"--workers" flag: 1025 CPU threads`},
		"argument too many": {args: []string{"version", "now"}, code: 2, err: `trainer version takes no argument, ` +
			`got "now"`},
		"no config":           {args: []string{"train"}, code: 2, err: "name a configuration: --config FILE"},
		"flag without config": {args: []string{"--json"}, code: 2, err: "name a configuration: --config FILE"},
		"no such config": {args: []string{"--config", "nothing"}, code: 2, err: `there is no configuration ` +
			`"nothing"`},
		"bad config": {args: []string{"validate", "--config", "bad.yaml"}, code: 2,
			err: "trainer: bad.yaml:5:3: training.lerning_rate: unknown key; the nearest is training.learning_rate\n" +
				"bad.yaml:6:3: training.batchsize: unknown key; the nearest is training.batch_size\n" +
				"bad.yaml:7:1: micro_batch_size: unknown key; use training.batch_size\n3 problems in bad.yaml\n"},
		"bad config to train": {args: []string{"--config", "bad.yaml"}, code: 2, err: "3 problems in bad.yaml\n"},
		"bad config as JSON":  {args: []string{"validate", "bad.yaml", "--json"}, code: 2, out: `"line": 5,`},
		"good config": {args: []string{"validate", "cpu_stories_quick"}, code: 0,
			out: "ok  embedded:cpu_stories_quick.yaml\n"},
		"bad --set": {args: []string{"validate", "cpu_stories_quick", "--set", "seed"}, code: 2,
			err: "--set seed: write --set key=value"},
		"bad environment": {args: []string{"validate", "cpu_stories_quick"}, env: []string{"TRAINER_SEED=-1"},
			code: 2, err: "TRAINER_SEED: seed: expected a whole number, 0 or more, got -1"},
		"no GPU": {args: []string{"--config", "cuda.yaml"}, env: none, code: 3,
			err: "trainer: device: cuda is asked for, but "},
		"no GPU, validated": {args: []string{"validate", "cuda.yaml", "--json"}, env: none, code: 3,
			out: `"ok": false`},
		"no GPU, doctor": {args: []string{"doctor", "--cuda"}, env: none, code: 3, err: "trainer: no GPU: "},
		"no model":       {args: []string{"--config", "nomodel.yaml"}, code: 3, err: "find model org/none: "},
		"no model, plan": {args: []string{"plan", "--config", "nomodel.yaml"}, code: 3,
			err: "find model org/none: "},
		"no model, generate": {args: []string{"generate", "--model", "./none", "--prompt", "x"}, code: 3,
			err: "the folder ./none does not exist"},
		"no prompt": {args: []string{"generate", "--model", "embedded:stories260K", "--max-tokens", "0"},
			code: 2, err: "give a text to continue: --prompt TEXT, an instruction: --instruction TEXT, or a " +
				"conversation to answer: --messages FILE\n--max-tokens 0: must be at least 1"},
		"no adapter": {args: []string{"eval", "--config", "cpu_stories_quick", "--adapter", "none"}, code: 2,
			err: "--adapter none: no adapter folder in PEFT's format"},
		"unknown embedded": {args: []string{"inspect", "model", "embedded:none"}, code: 2,
			err: `there is no embedded model "none"; there is stories260K`},
		"no tokens": {args: []string{"inspect", "tokens"}, code: 2, err: "name a tokenizer and a text"},
		"no UTF-8": {args: []string{"inspect", "tokens", "--tokenizer", "embedded:stories260K", "--text-file",
			"binary.txt"}, code: 2, err: "binary.txt is not UTF-8: byte 1 is 0xff"},
		"all of no machine": {args: []string{"plan", "--config", "cpu_stories_quick", "--gpu", "4090", "--devices",
			"all"}, code: 2, err: "such as --devices 4"},
		"unknown GPU": {args: []string{"plan", "--config", "cpu_stories_quick", "--gpu", "h1000"}, code: 2,
			err: `--gpu: GPU "h1000" is not known: name one of h100, `},
		"no vram": {args: []string{"validate", "cpu_stories_quick", "--vram", "0"}, code: 2,
			err: "--vram 0: no run fits in nothing"},
		"odd vram": {args: []string{"plan", "--config", "cpu_stories_quick", "--vram", "much"}, code: 2,
			err: `--vram much: "much" is no amount of memory`},
		"strict": {args: append([]string{"train", "--strict", "--vram", "1.4MiB", "--workers", "2", "--set",
			"device=cpu", "--set", "output_dir=strict"}, small...), code: 3, err: "the run would leave a fast path, " +
			"which training.strict refuses:\n  gradient_checkpointing auto takes "},
		"plan --strict": {args: append([]string{"plan", "--strict", "--vram", "1.4MiB", "--set", "device=cpu",
			"--set", "output_dir=strict"}, small...), code: 3, err: "; cost: not measured; remedy: a smaller " +
			"training.batch_size"},
		"too little vram": {args: append([]string{"--vram", "1MB", "--workers", "2", "--set", "device=cpu", "--set",
			"output_dir=large"}, small...), code: 4, err: "the limit is 976.6 KiB: 419.1 KiB too much; no batch is " +
			"small enough: "},
		"does not fit": {args: append([]string{"--set", "output_dir=large"}, append(small, "--set",
			"dataset.max_length=512", "--set", "dataset.pad_to=max_length", "--set", "training.batch_size=100000")...),
			code: 4, err: "the run does not fit"},
		"expectation missed": {args: append([]string{"--set", "output_dir=missed"}, append(small, "--set",
			"expect.loss_decrease=0.9")...), code: 1, out: "steps    3 of 3", err: "trainer: expectation missed: the " +
			"loss fell by "},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := trainer(t, dir, c.env, "", c.args...)
			if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errOut, c.err) {
				t.Errorf("trainer %s\nexit code %d, want %d\nstdout %q\n  want %q\nstderr %q\n  want %q",
					strings.Join(c.args, " "), code, c.code, out, c.out, errOut, c.err)
			}
		})
	}
	if code := exitCode(fmt.Errorf("plan: %w", session.ErrDoesNotFit)); code != 4 {
		t.Errorf("a plan that does not fit exits with %d", code)
	}
}

// The job, end to end: train, look at what it left, refuse to overwrite it, evaluate, generate.
func TestTrainEvalGenerate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	code, out, errOut := trainer(t, dir, nil, "", append(small, "--json")...)
	var result train.Result
	if err := json.Unmarshal([]byte(out), &result); code != 0 || err != nil || result.Steps != 3 {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out, errOut)
	}
	if !strings.Contains(errOut, "step 3/3  loss ") {
		t.Errorf("no plain progress line in\n%s", errOut)
	}
	run := filepath.Join(dir, "runs", "cpu_stories_quick")
	effective, err := os.ReadFile(filepath.Join(run, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if s := merged(t, string(effective)); s.Dataset.MaxLength != 48 || s.Training.MaxSteps != 3 {
		t.Errorf("the effective configuration is\n%s", effective)
	}
	if code, _, errOut := trainer(t, dir, nil, "", small...); code == 0 ||
		!strings.Contains(errOut, "holds a run already") {
		t.Errorf("a second run into the same folder: exit code %d, %s", code, errOut)
	}

	// The effective configuration runs again to the same adapter.
	again := filepath.Join(dir, "again")
	if code, _, errOut := trainer(t, dir, nil, "", "--config", filepath.Join(run, "config.yaml"), "--set",
		"output_dir="+again, "--quiet"); code != 0 {
		t.Fatalf("exit code %d\n%s", code, errOut)
	}
	for _, name := range []string{"adapter_model.safetensors", "adapter_config.json"} {
		one, err1 := os.ReadFile(filepath.Join(run, name))
		two, err2 := os.ReadFile(filepath.Join(again, name))
		if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
			t.Errorf("%s of the run and of its effective configuration differ (%v, %v)", name, err1, err2)
		}
	}

	code, out, errOut = trainer(t, dir, nil, "", "eval", "--config", "cpu_stories_quick", "--set",
		"dataset.max_length=48", "--adapter", run, "--json")
	var report infer.EvalReport
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil || report.Rows == 0 || !(report.Loss > 0) {
		t.Errorf("eval: exit code %d, %v\n%s%s", code, err, out, errOut)
	}
	code, text, errOut := trainer(t, dir, nil, "Once upon a time", "generate", "--model", "embedded:stories260K",
		"--prompt", "-", "--max-tokens", "8")
	if code != 0 || strings.TrimSpace(text) == "" {
		t.Errorf("generate: exit code %d, %q\n%s", code, text, errOut)
	}
	code, out, _ = trainer(t, dir, nil, "", "generate", "--model", "embedded:stories260K", "--prompt",
		"Once upon a time", "--max-tokens", "8", "--json")
	var answer infer.Generated
	if err := json.Unmarshal([]byte(out), &answer); code != 0 || err != nil ||
		strings.TrimSpace(answer.Text) != strings.TrimSpace(text) {
		t.Errorf("generate --json: exit code %d, %v, %q, without it %q", code, err, answer.Text, text)
	}
	code, out, errOut = trainer(t, dir, nil, "", "merge", "--model", "embedded:stories260K", "--adapter", run,
		"--out", "merged")
	if code != 0 || !strings.HasPrefix(out, "merged: embedded:stories260K with the adapter in 35 layers") {
		t.Errorf("merge: exit code %d, %s%s", code, out, errOut)
	}
	if code, _, errOut := trainer(t, dir, nil, "", "merge", "--model", "embedded:stories260K"); code != 2 ||
		!strings.Contains(errOut, "name the adapter and a new folder") {
		t.Errorf("merge without adapter: exit code %d, %s", code, errOut)
	}
	code, out, errOut = trainer(t, dir, nil, "", "plan", "--config", "cpu_stories_quick", "--set",
		"dataset.max_length=48", "--set", "training.batch_size=2", "--json")
	var plan train.PlanReport
	if err := json.Unmarshal([]byte(out), &plan); code != 0 || err != nil || plan.TotalBytes != result.HeldBytes {
		t.Errorf("plan: exit code %d, %v, %d bytes, the run held %d\n%s", code, err, plan.TotalBytes,
			result.HeldBytes, errOut)
	}
	sum := int64(0)
	for _, c := range plan.Categories {
		sum += c.Bytes
	}
	if sum != plan.TotalBytes {
		t.Errorf("the plan's categories add up to %d, its total is %d", sum, plan.TotalBytes)
	}
}

// A signal stops the run after a checkpoint, with its own exit code, and the command that it prints resumes the run
// from there.
func TestSignals(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := t.TempDir()
			folder := "it's \"my\" run"
			args := []string{"--config", "cpu_stories_quick", "--set", "output_dir=" + folder, "--set",
				"dataset.max_length=48", "--set", "training.batch_size=1", "--set", "training.logging_steps=1", "--set",
				"expect.loss_decrease=0"}
			cmd := program(dir, append(args, "--set", "training.max_steps=100000")...)
			pipe, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(pipe)
			for lines.Scan() && !strings.HasPrefix(lines.Text(), "step 2/") {
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if sig == syscall.SIGHUP { // a closed terminal sends it twice
				time.Sleep(time.Millisecond)
				cmd.Process.Signal(sig) //nolint:errcheck // the run may have ended
			}
			said := ""
			for lines.Scan() {
				said = lines.Text()
			}
			io.Copy(io.Discard, pipe)
			cmd.Wait()
			_, command, ok := strings.Cut(said, "; resume with: ")
			if code := cmd.ProcessState.ExitCode(); code != want || !ok {
				t.Errorf("exit code %d, want %d; last line %q", code, want, said)
			}
			path, damaged, err := checkpoint.Latest(filepath.Join(dir, folder))
			if err != nil || len(damaged) > 0 || path == "" {
				t.Fatalf("checkpoint %q, %v, %v", path, damaged, err)
			}
			_, state, err := checkpoint.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			steps := fmt.Sprint(state.GlobalStep + 2)
			shell := exec.Command("sh", "-c", command+" --set training.max_steps="+steps)
			shell.Dir, shell.Env = dir, cmd.Env
			out, err := shell.Output()
			if want := fmt.Sprintf("steps    %s of %s, resumed after step %d\n", steps, steps,
				state.GlobalStep); err != nil || !strings.HasPrefix(string(out), want) {
				t.Errorf("%s: %v, %q, want %q", command, err, out, want)
			}
		})
	}
}

// A second SIGINT or SIGTERM does not wait for the step; a second SIGHUP does.
func TestSecondSignal(t *testing.T) {
	dir := t.TempDir()
	cmd := program(dir, "--config", "cpu_stories_quick", "--set", "training.gradient_accumulation_steps=500")
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	until := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Errorf("it ended without %q", text)
	}
	until("memory ")
	for try := 0; try < 20000; try++ { // the steps begin when there are metrics
		if there, _ := filepath.Glob(filepath.Join(dir, "runs/*/metrics.jsonl")); len(there) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for i, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGHUP, syscall.SIGTERM} {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			until("hangup: stopping; a step that has begun is finished and saved first; signal again to quit now")
		}
		time.Sleep(20 * time.Millisecond)
	}
	io.Copy(io.Discard, pipe)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	if saved, _ := filepath.Glob(filepath.Join(dir, "runs/*/checkpoint-*")); len(saved) > 0 {
		t.Errorf("the step was waited for: %v", saved)
	}
}

func TestInspect(t *testing.T) {
	dir := t.TempDir()
	text := "Once upon a time, Zoë 🐑\n"
	var plain, special tokensJSON
	for _, c := range []struct {
		dst  *tokensJSON
		args []string
	}{{&plain, nil}, {&special, []string{"--add-special-tokens"}}} {
		code, out, errOut := trainer(t, dir, nil, text, append([]string{"inspect", "tokens", "--tokenizer",
			"embedded:stories260K", "--text-file", "-", "--json"}, c.args...)...)
		if err := json.Unmarshal([]byte(out), c.dst); code != 0 || err != nil {
			t.Fatalf("exit code %d, %v\n%s%s", code, err, out, errOut)
		}
		if len(c.dst.IDs) == 0 || len(c.dst.Pieces) != len(c.dst.IDs) || len(c.dst.Offsets) != len(c.dst.IDs) {
			t.Errorf("%d ids, %d pieces, %d offsets", len(c.dst.IDs), len(c.dst.Pieces), len(c.dst.Offsets))
		}
	}
	if len(special.IDs) != len(plain.IDs)+1 || special.IDs[0] != 1 {
		t.Errorf("with special tokens %v, without %v", special.IDs, plain.IDs)
	}
	code, out, _ := trainer(t, dir, nil, "", "inspect", "tokens", "--tokenizer", "embedded:stories260K",
		"--text-file", "-", "--json")
	if want := `{"ids":[],"pieces":[],"offsets":[]}` + "\n"; code != 0 || out != want {
		t.Errorf("no text: exit code %d, %q", code, out)
	}

	code, out, errOut := trainer(t, dir, nil, "", "inspect", "data", "--config", "cpu_stories_quick", "-n", "2")
	if code != 0 || strings.Count(out, "(train): ") != 2 || !strings.Contains(out, "  masked\n") ||
		!strings.Contains(out, "  trained\n") {
		t.Errorf("inspect data: exit code %d\n%.2000s\n%s", code, out, errOut)
	}
	code, out, _ = trainer(t, dir, nil, "", "inspect", "data", "--config", "cpu_stories_quick", "-n", "3", "--json")
	var rows []dataset.Inspected
	if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil || len(rows) != 3 ||
		len(rows[0].Tokens) == 0 {
		t.Errorf("inspect data --json: exit code %d, %v, %d rows", code, err, len(rows))
	}

	code, out, errOut = trainer(t, dir, nil, "", "inspect", "model", "embedded:stories260K", "--json")
	var m modelJSON
	if err := json.Unmarshal([]byte(out), &m); code != 0 || err != nil || m.Parameters != 260_032 ||
		m.Config.HiddenSize != 64 {
		t.Errorf("inspect model: exit code %d, %v, %d parameters\n%s", code, err, m.Parameters, errOut)
	}
	if code, out, _ := trainer(t, dir, nil, "", "inspect", "model", "embedded:stories260K"); code != 0 ||
		!strings.Contains(out, "parameters  260032 in ") {
		t.Errorf("inspect model: exit code %d\n%s", code, out)
	}
}

func TestConfigsWrite(t *testing.T) {
	dir := t.TempDir()
	if code, _, errOut := trainer(t, dir, nil, "", "configs", "write", "cpu_stories_quick"); code != 0 {
		t.Fatal(errOut)
	}
	if code, out, _ := trainer(t, dir, nil, "", "validate", "cpu_stories_quick.yaml"); code != 0 ||
		!strings.HasPrefix(out, "ok  cpu_stories_quick.yaml\n") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if code, _, errOut := trainer(t, dir, nil, "", "configs", "write", "cpu_stories_quick"); code != 2 ||
		!strings.Contains(errOut, "is there already") {
		t.Errorf("overwriting: exit code %d, %s", code, errOut)
	}
}

// TestLongValuesAreShortened: an error shows the beginning and the end of a value that is as long as a book.
func TestLongValuesAreShortened(t *testing.T) {
	for _, value := range []string{strings.Repeat("x", 50_000), strings.Repeat("é", 20_000),
		strings.Repeat("€", longestLine)} {
		got := shortened("first line\nbad value " + value + " end\nlast line")
		lines := strings.Split(got, "\n")
		if len(lines) != 3 || lines[0] != "first line" || lines[2] != "last line" {
			t.Fatalf("other lines changed: %.100q", got)
		}
		if l := lines[1]; len(l) > longestLine+100 || !utf8.ValidString(l) || !strings.HasPrefix(l, "bad value "+
			value[:900]) || !strings.HasSuffix(l, " end") || !strings.Contains(l, "bytes are left out") {
			t.Errorf("%d bytes: %.60q", len(l), l)
		}
	}
	if text := strings.Repeat("y", longestLine); shortened(text) != text {
		t.Error("a line that is not too long was changed")
	}
}
