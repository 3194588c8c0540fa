package session_test

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/quantised"
	"github.com/tierlora/tierlora/session"
)

// TestActiveParameters: what the makers of mixtures of experts state in billions. Mistral AI counts the table of
// embeddings as active; so does Qwen; OpenAI's model card of gpt-oss does not ("we count unembedding parameters towards
// active parameters, but not embeddings").
func TestActiveParameters(t *testing.T) {
	var all []struct {
		Name   string
		Config json.RawMessage
	}
	golden.JSON(t, filepath.Join(golden.Root(t), "model", "testdata", "experts_releases.json"), &all)
	configs := map[string]string{}
	for _, r := range all {
		configs[r.Name] = string(r.Config)
	}
	for _, c := range []struct{ name, all, active, lessTable string }{ // billions; "" = not stated
		{"mistralai/Mixtral-8x7B-Instruct-v0.1", "46.7", "12.9", ""},
		{"Qwen/Qwen3-30B-A3B", "30.5", "3.3", ""},
		{"Qwen/Qwen3-235B-A22B-Instruct-2507", "235", "22", ""},
		{"Qwen/Qwen1.5-MoE-A2.7B", "14.3", "2.7", ""},
		{"Qwen/Qwen2-57B-A14B", "57.4", "14.2", ""},
		{"openai/gpt-oss-20b", "20.91", "", "3.61"},
		{"openai/gpt-oss-120b", "116.83", "", "5.13"},
	} {
		config, err := families.ParseConfig([]byte(configs[c.name]))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		declared, err := session.DeclaredWeights(config)
		if err != nil {
			t.Fatal(err)
		}
		known, err := quantised.Open(declared, config.Quantization)
		if err != nil {
			t.Fatal(err)
		}
		p := session.CountParameters(config, known)
		check := func(what string, got int64, want string) {
			_, digits, _ := strings.Cut(want, ".")
			unit := math.Pow10(-len(digits))
			// Makers round, or cut off: Qwen's 3.353 is 3.3.
			rounded, cut := math.Round(float64(got)/1e9/unit), math.Floor(float64(got)/1e9/unit)
			if stated, _ := strconv.ParseFloat(want, 64); want != "" && math.Round(stated/unit) != rounded && math.Round(stated/unit) != cut {
				t.Errorf("%s: %s %d, stated %s billions", c.name, what, got, want)
			}
		}
		check("all", p.All, c.all)
		check("active", p.Active, c.active)
		check("active without embeddings", p.ActiveLessTable, c.lessTable)
	}
}

// TestTargetNames: the names of all-linear are those by which PEFT saved it, experts' and routers' included; parameters
// are those that transformers 5 has.
func TestTargetNames(t *testing.T) {
	for _, name := range []string{"experts/mixtral_balanced", "experts/qwen3_moe", "shared_experts/qwen2_moe", "experts/gpt_oss"} {
		c, err := families.ParseConfig(golden.ReadFile(t, golden.Path(t, name+".config.json")))
		if err != nil {
			t.Fatal(err)
		}
		linears, parameters, err := session.TargetNames(c)
		if err != nil {
			t.Fatal(err)
		}
		var saved struct {
			Names []string `json:"target_modules"`
		}
		golden.JSON(t, golden.Path(t, name+".lora/adapter_config.json"), &saved)
		for i, path := range saved.Names {
			saved.Names[i] = path[strings.LastIndexByte(path, '.')+1:]
		}
		slices.Sort(linears)
		slices.Sort(saved.Names)
		if saved.Names = slices.Compact(saved.Names); !slices.Equal(linears, saved.Names) {
			t.Errorf("%s: all-linear is %v, PEFT saved %v", name, linears, saved.Names)
		}
		if want := []string{"experts.gate_up_proj", "experts.down_proj"}; !slices.Equal(parameters, want) {
			t.Errorf("%s: parameters %v, want %v", name, parameters, want)
		}
	}
}
