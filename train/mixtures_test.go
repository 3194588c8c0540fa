package train

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// peftMixtures are testdata/mixtures_in_peft: adapters of mixtures of experts and what PEFT computes with them.
type peftMixtures struct {
	Rows     [][]int32 `json:"rows"`
	Adapters map[string]struct {
		Model string             `json:"model"`
		Base  float64            `json:"base"` // mean NLL without the adapter
		PEFT  map[string]float64 `json:"peft"` // mean NLL by the version of transformers
	} `json:"adapters"`
}

// each runs f with a specification of the model of each adapter and the adapter's folder.
func (m *peftMixtures) each(t *testing.T, f func(t *testing.T, name string, s Spec, dir string)) {
	t.Helper()
	golden.JSON(t, golden.Path(t, "mixtures_in_peft/numbers.json"), m)
	var lines bytes.Buffer
	for _, ids := range m.Rows {
		line, err := json.Marshal(map[string][]int32{"input_ids": ids, "labels": ids})
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	rows := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(rows, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Adapters)) {
		t.Run(name, func(t *testing.T) {
			s := DefaultSpec()
			s.BaseModel = golden.FamilyModel{Folder: path.Dir(m.Adapters[name].Model),
				Name: path.Base(m.Adapters[name].Model)}.Dir(t)
			s.Adapter, s.Quantization, s.Device = "lora", nil, "cpu"
			s.Dataset.Path, s.Dataset.Format, s.Dataset.MaxLength = rows, "tokenized", 32
			s.Training.MaxSteps, s.Training.BatchSize = 1, 2
			s.OutputDir = filepath.Join(t.TempDir(), "run")
			f(t, name, s, golden.Path(t, "mixtures_in_peft/"+name))
		})
	}
}

func lossWith(t *testing.T, s Spec, dir string) float64 {
	t.Helper()
	e, err := infer.Evaluate(context.Background(), s.Evaluation(dir), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	return e.Loss
}

// TestMixturesEqualPEFT: PEFT's adapters of routers, experts and shared experts under transformers 5, and the program's
// own of experts as linear layers, which PEFT computes alike under transformers 4 and 5, give PEFT's loss.
func TestMixturesEqualPEFT(t *testing.T) {
	var m peftMixtures
	m.each(t, func(t *testing.T, name string, s Spec, dir string) {
		if strings.HasPrefix(name, "ours") && len(m.Adapters[name].PEFT) < 2 {
			t.Error("PEFT's number under one of transformers 4 and 5 is missing")
		}
		got := lossWith(t, s, dir)
		for version, want := range m.Adapters[name].PEFT {
			d := math.Abs(got-want) / want
			t.Logf("mean NLL %.9g, relative %.3g to transformers %s", got, d, version)
			if !(d <= 1e-6) || math.Abs(want-m.Adapters[name].Base) < 0.02 {
				t.Errorf("mean NLL %.9g, PEFT with transformers %s %.9g: relative %.3g", got, version, want, d)
			}
		}
	})
}

// TestMixturesAreWritten: runs write the adapter_config.json of the adapters above that PEFT's numbers are of.
func TestMixturesAreWritten(t *testing.T) {
	runs := map[string]func(c *adapter.LoRA){
		"ours_qwen2_moe": func(c *adapter.LoRA) {
			c.UseRSLoRA, c.RankPattern, c.AlphaPattern = true, map[string]int{"gate_proj": 1, "up_proj": 1, "gate": 3},
				map[string]float64{"down_proj": 5}
		},
		"ours_qwen3_moe": func(c *adapter.LoRA) { c.AlphaPattern = map[string]float64{"gate_proj": 3, "up_proj": 3} },
		"ours_mixtral": func(c *adapter.LoRA) {
			c.TargetModules,
				c.UseRSLoRA = adapter.Targets{".*(w[123]|q_proj)"}, true
		},
	}
	var m peftMixtures
	m.each(t, func(t *testing.T, name string, s Spec, dir string) {
		edit, ours := runs[name]
		if !ours {
			return
		}
		s.LoRA.R, s.LoRA.Alpha, s.LoRA.TargetModules = 2, 7, adapter.Targets{adapter.AllLinear}
		edit(&s.LoRA)
		mustStart(t, s, Env{})
		got := golden.ReadFile(t, s.OutputDir, adapter.ConfigFile)
		want := bytes.Replace(golden.ReadFile(t, dir, adapter.ConfigFile), []byte(`"model"`),
			[]byte(`"`+s.BaseModel+`"`), 1)
		if !bytes.Equal(got, want) {
			t.Errorf("adapter_config.json is\n%s\nwant\n%s", got, want)
		}
		if names := tensorNames(t, s.OutputDir); !slices.Equal(names, tensorNames(t, dir)) {
			t.Errorf("the tensors are %v", names)
		}
		plan, err := os.ReadFile(filepath.Join(s.OutputDir, PlanReportFile))
		if err != nil || bytes.Contains(plan, []byte("adapter in PEFT")) {
			t.Errorf("the plan says what PEFT does not load: %s, %v", plan, err)
		}
		started := s
		started.LoRA.InitFrom, started.OutputDir, started.Training.LearningRate = s.OutputDir,
			filepath.Join(t.TempDir(), "again"), 1e-30
		mustStart(t, started, Env{})
		if a, b := lossWith(t, s, s.OutputDir), lossWith(t, s, started.OutputDir); a != b {
			t.Errorf("an adapter that started from another is another: %v, %v", a, b)
		}
	})
}

// TestExportedMixtures: what these adapters are exported to and merged into has their loss.
func TestExportedMixtures(t *testing.T) {
	var m peftMixtures
	m.each(t, func(t *testing.T, name string, s Spec, dir string) {
		want := lossWith(t, s, dir)
		out := filepath.Join(t.TempDir(), "merged")
		if _, err := export.Merge(t.Context(), export.MergeOptions{Model: s.BaseModel, Adapters: export.One(dir),
			Out: out, DType: "fp32", Check: []string{}}, session.Env{}); err != nil {
			t.Fatal(err)
		}
		merged := s
		merged.BaseModel = out
		if got := lossWith(t, merged, ""); !(math.Abs(got-want) <= 1e-5*want) {
			t.Errorf("the merged model has %.9g, the adapter beside the base %.9g", got, want)
		}
		if name == "peft_gpt_oss" {
			return // its parameters are so in every version
		}
		out = filepath.Join(t.TempDir(), "peft")
		if _, err := export.Export(t.Context(), export.Options{Model: s.BaseModel, Adapter: dir, Format: "peft",
			DType: "f32", Out: out}, session.Env{}); err != nil {
			t.Fatal(err)
		}
		if got := lossWith(t, s, out); !(math.Abs(got-want) <= 1e-6*want) {
			t.Errorf("exported it has %.9g, want %.9g", got, want)
		}
	})
}

// TestMixturesThatPEFTRefuses: the plan says before the first step what PEFT will not load, and which command writes
// what it loads; a quiet run logs it.
func TestMixturesThatPEFTRefuses(t *testing.T) {
	for _, c := range []struct {
		folder, name string
		edit         func(s *Spec)
		want         string
	}{
		{"experts", "qwen3_moe", func(s *Spec) { s.LoRA.Dropout = 0.1 },
			"under transformers 5 PEFT refuses an adapter of experts or routers with a dropout, here 0.1; `trainer " +
				"export --format peft`"},
		{"experts", "mixtral_balanced", func(s *Spec) { s.LoRA.AlphaPattern = map[string]float64{"w3": 1} },
			"refuses w1 and w3 of experts with two scales, here 2 and 0.25; `trainer export --format peft`"},
		{"experts", "qwen3_moe", func(s *Spec) { s.LoRA.TargetModules = adapter.Targets{"gate_proj", "q_proj"} }, "refuses gate_proj and up_proj of experts unless both are adapted; `trainer export"},
		{"shared_experts", "qwen2_moe", func(s *Spec) { s.LoRA.TargetModules = adapter.Targets{`.*experts\.[01]\..*`} }, "refuses an adapter of some experts only: 2 of 5 have one of gate_proj in"},
		{"fused_experts", "qwen3_moe_fused", func(*Spec) {}, "under transformers 4, where experts are linear layers, PEFT refuses an adapter of target_parameters; `trainer export"},
	} {
		s := familySpec(t, golden.FamilyModel{Folder: c.folder, Name: c.name})
		s.Training.MaxSteps = 1
		c.edit(&s)
		var log strings.Builder
		mustStart(t, s, Env{Env: session.Env{Quiet: true, Log: func(line string) { log.WriteString(line + "\n") }}})
		var plan PlanReport
		golden.JSON(t, filepath.Join(s.OutputDir, PlanReportFile), &plan)
		if !slices.ContainsFunc(plan.Notes, func(n string) bool {
			return strings.HasPrefix(n, "adapter in PEFT: ") &&
				strings.Contains(n, c.want)
		}) {
			t.Errorf("%s: the plan's notes are %q, want one with %s", c.name, plan.Notes, c.want)
		}
		if !strings.Contains(log.String(), c.want) {
			t.Errorf("%s: the log is %q", c.name, log.String())
		}
	}
}
