package tier

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/train"
)

// startOf writes the start of a layer's A; B's is zero.
func startOf(name string, v []float32) {
	clear(v)
	layer, isA := strings.CutSuffix(strings.TrimPrefix(name, "base_model.model."), ".lora_A.weight")
	if !isA {
		return
	}
	a := adapter.Param{Name: layer + ".lora_A.weight", Shape: []int{small.Rank, len(v) / small.Rank}, Data: v}
	b := adapter.Param{Name: layer + ".lora_B.weight", Shape: []int{1, small.Rank}, Data: make([]float32, small.Rank)}
	start := adapter.NewStart(adapter.Methods["lora"], adapter.Default(), smallSpec().Seed)
	if err := start.Fill(nil, nil, &adapter.Trained{Layers: []string{layer}}, []adapter.Param{a, b}); err != nil {
		panic(err)
	}
}

var exit = Exit{Failed: 1, Unfit: 3, DoesNotFit: 4, Skipped: 77, Stopped: func() int { return 143 }}

// validate runs tiers by the stand-in.
func validate(t *testing.T, broken string, change func(*Options)) Report {
	t.Helper()
	dir, err := recorded()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Program: program, Env: []string{envRecorded + "=" + dir, envBreak + "=" + broken}, Dir: filepath.Join(t.TempDir(), "report"), Tiers: []Tier{small}, Exit: exit,
		About: Program{SHA256: "of the program"}, Spec: specOf(func(*train.Spec) {}),
	}
	if change != nil {
		change(&o)
	}
	p, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	data, err := os.ReadFile(filepath.Join(o.Dir, ReportJSON))
	if err == nil {
		err = json.Unmarshal(data, &back)
	}
	if err != nil || back.Schema != Schema || back.ExitCode != p.ExitCode || len(back.Tiers) != len(o.Tiers) {
		t.Errorf("%s: %+v, %v", ReportJSON, back, err)
	}
	for _, name := range []string{ReportMarkdown, ReportHTML} {
		if text, err := os.ReadFile(filepath.Join(o.Dir, name)); err != nil || !strings.Contains(string(text), p.Summary()) {
			t.Errorf("%s does not say %q: %v", name, p.Summary(), err)
		}
	}
	return p
}

// specOf reads configurations as the recorded run has them, with a change.
func specOf(change func(*train.Spec)) func(string, []string) (train.Spec, error) {
	return func(config string, _ []string) (train.Spec, error) {
		s := smallSpec()
		if config != small.Config {
			data, err := os.ReadFile(config)
			if err != nil {
				return s, err
			}
			s = train.Spec{}
			if err := yaml.Unmarshal(data, &s); err != nil {
				return s, err
			}
		}
		change(&s)
		return s, nil
	}
}

func TestWholeRunPasses(t *testing.T) {
	p := validate(t, "", nil)
	r := p.Tiers[0]
	if p.Status != Pass || p.ExitCode != 0 || r.Status != Pass {
		t.Fatalf("%s, %d: %s %s", p.Status, p.ExitCode, r.Status, r.Reason)
	}
	if len(r.Steps) != 10 || r.Loss == nil || r.Memory.Held != r.Memory.Planned || r.Manifest == nil || r.BaseSHA256 == "" || r.ConfigSHA256 == "" || len(r.Commands) != 3 || len(p.Commands) != 1 {
		t.Errorf("%+v", r)
	}
	if r.Commands[1].HostPeak < 1<<20 {
		t.Errorf("the run's process had %d bytes at most", r.Commands[1].HostPeak)
	}
}

// TestBrokenRunsFail: each is a failure for its own reason.
func TestBrokenRunsFail(t *testing.T) {
	for broken, want := range map[string]string{
		"9 of 10 steps":                   "all steps: 9 of 10",
		"9 steps wanted":                  "all steps: 9 of 10",
		"a plan of 9 steps":               "plan: 9 steps",
		"held more than planned":          "held bytes are the plan's: ",
		"another first loss":              "the result's losses are the file's: ",
		"missed":                          "the run: exit code 1",
		"killed":                          "the run: signal: killed",
		"garbage":                         "the run: what it printed is no result: ",
		"says nothing":                    "the run: what it printed is no result: nothing",
		"crashes":                         "the run: exit code 2: panic:  [2Jsomething",
		"a line less":                     "a loss for every step: 9 lines",
		"cut in the middle of a line":     "metrics.jsonl: line 7 of metrics.jsonl is damaged",
		"no metrics":                      "metrics.jsonl: open ",
		"a loss that is no number":        "every number is finite: line 4 of metrics.jsonl: loss is no number",
		"another loss in the file":        "the manifest's losses are the file's: ",
		"memory that grows":               "memory of every step: ",
		"a B of zeros":                    "the adapter: base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight is what it was at the start",
		"an A at its start":               "the adapter: base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight is what it was at the start",
		"a NaN in the adapter":            "the adapter: base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight: number 1 is NaN",
		"another adapter":                 "the adapter's bytes are the manifest's: ",
		"no B":                            "the adapter: base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight has no ",
		"no adapter":                      "the adapter: ",
		"no checkpoint":                   "checkpoint-10: ",
		"a damaged checkpoint":            "checkpoint-10: ",
		"ran lora":                        "the run did what the tier names: adapter is lora, the tier has qlora",
		"ran without double quantisation": "the run did what the tier names: quantization.double_quant is false, the tier has true",
		"another configuration":           "the run's configuration is the manifest's: ",
		"no manifest":                     "run_manifest.json: ",
		"another replay":                  "replay: 5 steps again, losses and rows equal bit for bit: false",
	} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			p := validate(t, broken, nil)
			if r := p.Tiers[0]; p.Status != Fail || p.ExitCode != exit.Failed || r.Status != Fail || !strings.HasPrefix(r.Reason, want) {
				t.Errorf("%s, exit code %d, reason %q, want %q", p.Status, p.ExitCode, r.Reason, want)
			}
		})
	}
}

// TestEditedConfigurations are refused before anything is run.
func TestEditedConfigurations(t *testing.T) {
	for want, change := range map[string]func(*train.Spec){
		"training.max_steps is 9, the tier has 10":         func(s *train.Spec) { s.Training.MaxSteps = 9 },
		"adapter is lora, the tier has qlora":              func(s *train.Spec) { s.Adapter, s.Quantization = "lora", nil },
		"quantization.type is fp4, the tier has nf4":       func(s *train.Spec) { s.Quantization.Type = "fp4" },
		"lora.r is 2, the tier has 4":                      func(s *train.Spec) { s.LoRA.R = 2 },
		"dataset.max_length is 8, the tier has 48":         func(s *train.Spec) { s.Dataset.MaxLength = 8 },
		"training.save_steps is 1, the tier has 0":         func(s *train.Spec) { s.Training.SaveSteps = 1 },
		"device is auto, the tier has cpu":                 func(s *train.Spec) { s.Device = "auto" },
		"lora.init_from is elsewhere, the tier has":        func(s *train.Spec) { s.LoRA.InitFrom = "elsewhere" },
		"max_steps is 9, the tier has 10; adapter is lora": func(s *train.Spec) { s.Training.MaxSteps, s.Adapter = 9, "lora" },
	} {
		p := validate(t, "", func(o *Options) { o.Spec = specOf(change) })
		if r := p.Tiers[0]; p.ExitCode != exit.Failed || !strings.Contains(r.Reason, want) || len(r.Commands) != 0 {
			t.Errorf("exit code %d, reason %q, %d commands, want %q", p.ExitCode, r.Reason, len(r.Commands), want)
		}
	}
}

// TestTiersInTurn: one broken tier of three decides the exit code; the others are skipped, or run on demand.
func TestTiersInTurn(t *testing.T) {
	three := func(o *Options) {
		o.Env = append(o.Env, envOnly+"=second")
		o.Tiers = nil
		for _, name := range []string{"first", "second", "third"} {
			x := small
			x.Name = name
			o.Tiers = append(o.Tiers, x)
		}
	}
	states := func(p Report) string {
		var s []string
		for _, r := range p.Tiers {
			s = append(s, r.Status)
		}
		return strings.Join(s, " ")
	}
	p := validate(t, "a B of zeros", three)
	if states(p) != "pass fail skip" || p.ExitCode != 1 || p.Tiers[2].Reason != "second failed before it; --continue-on-error goes on" || p.Tiers[2].ExitCode != exit.Skipped {
		t.Errorf("%s, exit code %d: %+v", states(p), p.ExitCode, p.Tiers[2].Reason)
	}
	p = validate(t, "no memory", func(o *Options) { three(o); o.ContinueOnError, o.AllowSkip = true, true })
	if states(p) != "pass fail pass" || p.ExitCode != exit.DoesNotFit || !strings.HasPrefix(p.Summary(), "2 of 3 passed, 1 failed, 0 skipped in ") {
		t.Errorf("%s, exit code %d: %s", states(p), p.ExitCode, p.Summary())
	}
}

// onCard makes the tier one on a GPU, whose memory grows with the run by the plan's bytes and more.
func onCard(free, more int64, known bool) func(*Options) {
	return func(o *Options) {
		x := small
		x.GPU = true
		o.Tiers = []Tier{x}
		o.Spec = specOf(func(s *train.Spec) { s.Device = "cuda" })
		calls := 0
		o.Card = func() (Card, bool) {
			calls++
			if o.CheckVRAM && calls <= 2 || calls == 1 {
				return Card{Used: 1000, Free: free}, known
			}
			dir, _ := recorded()
			var plan train.PlanReport
			if err := readJSON(filepath.Join(dir, "plan.json"), &plan); err != nil {
				return Card{}, false
			}
			return Card{Used: 1000 + plan.TotalBytes + more}, known
		}
	}
}

func TestCard(t *testing.T) {
	both := func(change ...func(*Options)) func(*Options) {
		return func(o *Options) {
			for _, c := range change {
				c(o)
			}
		}
	}
	vram := func(o *Options) { o.CheckVRAM = true }
	for _, c := range []struct {
		name, broken string
		change       func(*Options)
		status       string
		code         int
		reason       string
	}{
		{"whole", "", both(vram, onCard(1<<30, 500<<20, true)), Pass, 0, ""},
		{"too little free", "", both(vram, onCard(100<<20, 0, true)), Fail, 4, "MiB of it for the driver; 100.0 MiB (104857600 bytes) free: "},
		{"free is not known", "", both(vram, onCard(1<<30, 0, false)), Fail, 3, "free memory of the card: it can't be read"},
		{"grew by too much", "", onCard(0, 2<<30, true), Fail, 1, "the card's memory: grew by 2.0 GiB"},
		{"grew by too little", "", onCard(0, -1, true), Fail, 1, "the card's memory: grew by "},
		{"not known", "", onCard(0, 0, false), Skip, 77, "the card's memory: it can't be read"},
		{"not known, allowed", "", both(onCard(0, 0, false), func(o *Options) { o.AllowSkip = true }), Pass, 0, ""},
		{"no GPU", "no GPU", onCard(0, 0, true), Fail, 3, "a usable GPU: exit code 3: trainer: no GPU: the driver is missing"},
		{"no GPU, skips allowed", "no GPU", both(onCard(0, 0, true), func(o *Options) { o.AllowSkip = true }), Fail, 3, "a usable GPU: "},
		{"a kernel", "a kernel", onCard(0, 0, true), Fail, 1, "every kernel against float64: 10 passed, 1 failed"},
		{"over the limit", "a plan over the limit", both(onCard(0, 0, true), func(o *Options) {
			o.Tiers[0].Limit = 256 * mb
			o.Spec = specOf(func(s *train.Spec) { s.Device, s.VRAM = "cuda", "256MB" })
		}), Fail, 1, "the plan's bytes: 476.8 MiB"},
		{"no limit in the configuration", "", both(onCard(0, 0, true), func(o *Options) { o.Tiers[0].Limit = 256 * mb }), Fail, 1, `the configuration names what the tier runs: vram is ""`},
	} {
		p := validate(t, c.broken, c.change)
		if r := p.Tiers[0]; p.Status != c.status || p.ExitCode != c.code || !strings.Contains(r.Reason, c.reason) {
			t.Errorf("%s: %s, exit code %d, reason %q, want %s, %d, %q", c.name, p.Status, p.ExitCode, r.Reason, c.status, c.code, c.reason)
		}
	}
}

// TestHangs: a command past its time is killed, and its log has its stacks.
func TestHangs(t *testing.T) {
	dir, err := recorded()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	r := &runner{Options: Options{Program: program, Env: []string{envRecorded + "=" + dir, envBreak + "=hangs"}, Dir: out}}
	began := time.Now()
	c, err := r.run(context.Background(), call{name: "train", args: []string{"train"}, dir: out, limit: time.Second}, &struct{}{})
	if err != nil || !strings.HasPrefix(c.Problem, "did not end within 1s and was killed") {
		t.Errorf("%+v, %v", c, err)
	}
	if log, err := os.ReadFile(filepath.Join(out, "train.log")); err != nil || !strings.Contains(string(log), "goroutine") {
		t.Errorf("%v: %s", err, log)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

// TestStopped: a signal ends the run and the validation; what was not run is skipped.
func TestStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	dir, err := recorded()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	second := small
	second.Name = "second"
	p, err := Run(ctx, Options{Program: program, Env: []string{envRecorded + "=" + dir, envBreak + "=hangs"}, Dir: t.TempDir(), Tiers: []Tier{small, second}, Exit: exit, Spec: specOf(func(*train.Spec) {}),
		OnCheck: func(c Check) {
			if c.Name == "plan" {
				cancel()
			}
		}})
	if err != nil || p.ExitCode != 143 || p.Status != Fail || p.Tiers[0].Status != Fail || p.Tiers[1].Status != Skip {
		t.Errorf("%s, %d, %v: %+v", p.Status, p.ExitCode, err, p.Tiers)
	}
}

// TestSamplesOverARun: what grows from one half of the steps to the other is seen, and too few samples are not judged.
func TestSamplesOverARun(t *testing.T) {
	host := func(s Sample) int64 { return s.Host }
	grows := []Sample{{Step: 0, Host: 900}, {Step: 1, Host: 100}, {Step: 5, Host: 200}, {Step: 6, Host: 150}, {Step: 9, Host: 300}, {Step: 10, Host: 1}}
	if first, last, ok := halves(grows, 10, host); first != 200 || last != 300 || !ok {
		t.Errorf("%d, %d, %v", first, last, ok)
	}
	if _, _, ok := halves(grows[:3], 10, host); ok {
		t.Error("half a run was enough")
	}
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	s := newSampler(nil, path)
	s.follow()
	for i, text := range []string{`{"step":1}` + "\n" + `{"st`, `ep":2}`, "\nnonsense\n", `{"step":7,"eval_loss":1}` + "\n"} {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = f.WriteString(text)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if s.follow(); s.step != []int{1, 1, 1, 7}[i] {
			t.Errorf("after %q: step %d", text, s.step)
		}
	}
}

func TestFall(t *testing.T) {
	var steps []Step
	var losses []float64
	for i := range 25 {
		losses = append(losses, 1/float64(i+1))
		steps = append(steps, Step{Loss: losses[i]})
	}
	first, last, part := train.LossFall(losses)
	if l := fall(steps); math.Abs(l.FirstTenth-first) > 1e-12 || math.Abs(l.LastTenth-last) > 1e-12 || math.Abs(l.Fall-part) > 1e-12 {
		t.Errorf("%+v, train.LossFall says %v, %v, %v", l, first, last, part)
	}
	if l := fall([]Step{{}}); l.Fall != 0 {
		t.Errorf("of a loss of zero: %+v", l)
	}
}

// TestLastWords: of what a command printed, its error is told in one line, with what to do.
func TestLastWords(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a\nb\n": ": b", "plan: x\ntrainer: find model x: nothing there\npass --download\n": ": trainer: find model x: nothing there; pass --download",
		"trainer: stopping\ntrainer: full\n": ": trainer: full",
	} {
		if got := (&tail{text: []byte(text)}).String(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got, want := shown([]string{"trainer", "--report", "a b", ""}), `trainer --report "a b" ""`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
