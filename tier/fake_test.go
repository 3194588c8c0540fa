package tier

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/replay"
)

// These variables make this test's program stand in for the trainer: it hands out a recorded run, broken as asked.
const (
	envRecorded = "TIER_TEST_RECORDED"
	envBreak    = "TIER_TEST_BREAK" // what is broken
	envOnly     = "TIER_TEST_ONLY"  // the tier that is broken; "" = every one
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envRecorded); dir != "" {
		os.Exit(fake(dir, os.Args[1:]))
	}
	code := m.Run()
	if recordedDir != "" {
		os.RemoveAll(recordedDir)
	}
	os.Exit(code)
}

var recordedDir string

// small is the tier of the recorded run, and its configuration.
var small = Tier{Name: "small", Config: "small-config", Steps: 10, Method: "qlora", Quant: quant.Default(), Rank: 4, Length: 48, Time: time.Minute}

func smallSpec() train.Spec {
	s := train.DefaultSpec()
	stored := quant.Default()
	s.BaseModel, s.Adapter, s.Quantization, s.Device = "embedded:stories260K", "qlora", &stored, "cpu"
	s.LoRA.R = small.Rank
	s.Dataset.Path, s.Dataset.Format, s.Dataset.MaxLength = "embedded:gsm8k_300.jsonl", "text", small.Length
	s.Dataset.Fields = map[string]string{"text": "question"}
	s.Training.MaxSteps, s.Training.LearningRate = small.Steps, 1e-3
	s.Seed = 7
	return s
}

// recorded trains the tier's run once: a folder with plan.json, train.json and run.
var recorded = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tier-test-")
	if err != nil {
		return "", err
	}
	recordedDir = dir
	s := smallSpec()
	s.OutputDir = filepath.Join(dir, "run")
	config, err := yaml.Marshal(s)
	if err != nil {
		return "", err
	}
	env := train.Env{Env: session.Env{Version: "test", Model: configs.Model, Data: configs.Data}, Config: config}
	plan, err := train.PlanRun(context.Background(), s, env)
	if err != nil {
		return "", err
	}
	result, err := train.Start(context.Background(), s, env)
	if err != nil {
		return "", err
	}
	for name, v := range map[string]any{"plan.json": plan, "train.json": result} {
		data, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	return dir, nil
})

// fake is the trainer.
func fake(dir string, args []string) int {
	broken, out := os.Getenv(envBreak), ""
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "output_dir="); ok {
			out = v
		}
	}
	if only := os.Getenv(envOnly); only != "" && !strings.Contains(strings.Join(args, " "), string(filepath.Separator)+only+string(filepath.Separator)) {
		broken = ""
	}
	var err error
	switch args[0] {
	case "doctor":
		if broken == "no GPU" {
			fmt.Fprintln(os.Stderr, "trainer: no GPU: the driver is missing")
			return 3
		}
		fmt.Println(`{"platform": "linux/amd64", "cores": 2, "driver": "580", "gpus": [{"name": "Test Card"}]}`)
	case "selfcheck":
		failed := 0
		if broken == "a kernel" {
			failed = 1
		}
		fmt.Printf(`{"passed": 10, "failed": %d, "skipped": 1}`, failed)
	case "plan":
		err = edit(filepath.Join(dir, "plan.json"), os.Stdout.Name(), func(m map[string]any) {
			if broken == "a plan of 9 steps" {
				m["steps"] = 9
			}
			if broken == "a plan over the limit" {
				m["total_bytes"] = 5e8
			}
		})
	case "verify":
		fmt.Printf(`{"steps": %d, "of_steps": 10, "equal": %v}`, replaySteps, broken != "another replay")
	case "train":
		return fakeTrain(dir, out, broken)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func fakeTrain(dir, out, broken string) int {
	code := 0
	switch broken {
	case "killed":
		self, _ := os.FindProcess(os.Getpid())
		self.Kill() //nolint:errcheck // it does not return
		select {}
	case "hangs":
		fmt.Fprintln(os.Stderr, "step 3 of 10")
		time.Sleep(time.Hour)
	case "garbage":
		fmt.Println("\x1b[31mnot { JSON")
		return 0
	case "says nothing":
		return 0
	case "crashes":
		fmt.Fprintln(os.Stderr, "panic: \x1b[2Jsomething")
		return 2
	case "no memory":
		fmt.Fprintln(os.Stderr, "trainer: it does not fit")
		return 4
	}
	run := out
	err := os.CopyFS(run, os.DirFS(filepath.Join(dir, "run")))
	if err == nil {
		err = breakRun(run, broken)
	}
	if err == nil {
		err = edit(filepath.Join(dir, "train.json"), os.Stdout.Name(), func(m map[string]any) {
			switch broken {
			case "9 of 10 steps":
				m["steps"] = 9
			case "9 steps wanted":
				m["steps"], m["max_steps"] = 9, 9
			case "held more than planned":
				m["held_bytes"] = m["held_bytes"].(float64) + 1
			case "another first loss":
				m["first_loss"] = 1.5
			case "missed":
				m["expect"] = []any{map[string]any{"criterion": "loss_decrease", "want": "90 %", "got": "1 %", "met": false}}
				code = 1
			case "slower":
				m["step_ms"] = map[string]any{"median": 20, "first_tenth": 10, "last_tenth": 30}
			case "steady", "steady, other losses":
				m["step_ms"] = map[string]any{"median": 10, "first_tenth": 10, "last_tenth": 10}
			}
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// breakRun breaks what a run left.
func breakRun(run, broken string) error {
	metrics := filepath.Join(run, train.MetricsFile)
	lines := func(change func(lines []string) []string) error {
		text, err := os.ReadFile(metrics)
		if err != nil {
			return err
		}
		return os.WriteFile(metrics, []byte(strings.Join(change(strings.SplitAfter(string(text), "\n")), "")), 0o644)
	}
	tensors := func(change func(name string, v []float32)) error {
		path := filepath.Join(run, "adapter_model.safetensors")
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := weights.Decode(data)
		if err != nil {
			return err
		}
		var all []weights.Tensor
		values := map[string][]float32{}
		for _, name := range f.Names() {
			t, _ := f.Tensor(name)
			values[name] = make([]float32, t.Len())
			if err := weights.Float32s(t, values[name]); err != nil {
				return err
			}
			change(name, values[name])
			if values[name][0] != 12345 { // stands for a tensor that is left out
				all = append(all, t)
			} else {
				delete(values, name)
			}
		}
		if data, err = weights.EncodeFloat32s(all, f.Metadata(), values); err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o644)
	}
	config := func(change func(s *train.Spec)) error {
		path := filepath.Join(run, train.ConfigFile)
		var s train.Spec
		data, err := os.ReadFile(path)
		if err == nil {
			err = yaml.Unmarshal(data, &s)
		}
		if err != nil {
			return err
		}
		change(&s)
		if data, err = yaml.Marshal(s); err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		manifest := filepath.Join(run, replay.ManifestFile)
		return edit(manifest, manifest, func(m map[string]any) { m["config_sha256"] = hex.EncodeToString(sum[:]) }, os.WriteFile(path, data, 0o644))
	}
	const someB, someA = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight", "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"
	switch broken {
	case "a line less":
		return lines(func(l []string) []string { return append(l[:4:4], l[5:]...) })
	case "cut in the middle of a line":
		return lines(func(l []string) []string { l[6] = l[6][:20]; return l[:7] })
	case "no metrics":
		return os.Remove(metrics)
	case "a loss that is no number":
		return lines(func(l []string) []string { l[3] = `{"step":4,"loss":null}` + "\n"; return l })
	case "another loss in the file", "steady, other losses":
		if err := lines(func(l []string) []string { l[3] = strings.Replace(l[3], `"loss":`, `"loss":1`, 1); return l }); err != nil || broken == "another loss in the file" {
			return err
		}
		return rehash(run)
	case "memory that grows":
		return lines(func(l []string) []string {
			l[8] = strings.Replace(l[8], `"memory/max_allocated (GiB)":0`, `"memory/max_allocated (GiB)":1`, 1)
			return l
		})
	case "a B of zeros":
		return tensors(func(name string, v []float32) {
			if name == someB {
				clear(v)
			}
		})
	case "an A at its start":
		return tensors(func(name string, v []float32) {
			if name == someA {
				startOf(name, v)
			}
		})
	case "a NaN in the adapter":
		return tensors(func(name string, v []float32) {
			if name == someA {
				v[1] = float32(math.NaN())
			}
		})
	case "another adapter":
		return tensors(func(name string, v []float32) {
			if name == someA {
				v[1] += 0.5
			}
		})
	case "no B":
		return tensors(func(name string, v []float32) {
			if name == someB {
				v[0] = 12345
			}
		})
	case "no adapter":
		return os.Remove(filepath.Join(run, "adapter_model.safetensors"))
	case "no checkpoint":
		return os.RemoveAll(filepath.Join(run, checkpoint.Name(small.Steps)))
	case "a damaged checkpoint":
		return os.Truncate(filepath.Join(run, checkpoint.Name(small.Steps), "optimizer.safetensors"), 100)
	case "ran lora":
		return config(func(s *train.Spec) { s.Adapter = "lora" })
	case "ran without double quantisation":
		return config(func(s *train.Spec) { s.Quantization.DoubleQuant = false })
	case "another configuration":
		return os.WriteFile(filepath.Join(run, train.ConfigFile), []byte("{}"), 0o644)
	case "no manifest":
		return os.Remove(filepath.Join(run, replay.ManifestFile))
	}
	return nil
}

// rehash makes a run's manifest fit the losses in its metrics.
func rehash(run string) error {
	m, err := readMetrics(filepath.Join(run, train.MetricsFile))
	if err != nil {
		return err
	}
	var losses []float64
	for _, s := range m.steps {
		losses = append(losses, s.Loss)
	}
	was, err := replay.ReadManifest(run)
	if err != nil {
		return err
	}
	was.SetLosses(losses)
	for i, e := range was.Evidence {
		was.Evidence[i].Losses = hashLosses(losses[:e.Step])
	}
	return was.Write(run)
}

// edit copies a JSON object with changes.
func edit(from, to string, change func(map[string]any), earlier ...error) error {
	for _, err := range earlier {
		if err != nil {
			return err
		}
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var m map[string]any
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&m); err != nil {
		return err
	}
	change(m)
	if data, err = json.Marshal(m); err != nil {
		return err
	}
	if to == os.Stdout.Name() {
		_, err = os.Stdout.Write(data)
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
