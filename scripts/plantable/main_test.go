package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/families"
)

// inRoot runs the test in the repository's root, from which the script reads its files.
func inRoot(t *testing.T) []release {
	t.Helper()
	t.Chdir(golden.Root(t))
	all, err := readReleases()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTableHasTheReleases: the table of docs/GPU.md has a row for each release, in order, with the parameters that its
// configuration has. `go run -tags gpu ./scripts/plantable -update docs/GPU.md -only NAME` makes a row anew.
func TestTableHasTheReleases(t *testing.T) {
	all := inRoot(t)
	rows, names := tableRows(t)
	var want []string
	for _, r := range all {
		want = append(want, r.Name)
		if r.Source == "" {
			t.Errorf("%s: no source", r.Name)
		}
		raw, err := r.raw()
		if err != nil {
			t.Fatal(err)
		}
		config, err := families.ParseConfig(raw)
		if err != nil {
			t.Errorf("%s: %v", r.Name, err)
			continue
		}
		size, err := sizes(config)
		if err != nil {
			t.Errorf("%s: %v", r.Name, err)
		} else if line := fmt.Sprintf("| %s | %s |", r.Name, size); !strings.HasPrefix(rows[r.Name], line) {
			t.Errorf("docs/GPU.md has\n%sfor\n%s", rows[r.Name], line)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("docs/GPU.md has the releases\n%q, releases.json\n%q", names, want)
	}
}

// TestEveryFamilyHasARelease: a family that people train has a row.
func TestEveryFamilyHasARelease(t *testing.T) {
	seen := map[string]bool{
		// releases.json has no config.json of AFM-4.5B, Command R and GLM-4-9B
		"arcee": true, "cohere": true, "cohere2": true, "glm": true,
		// releases.json has no config.json of Trinity, Apertus, Hunyuan and Qwen3-Next
		"afmoe": true, "apertus": true, "hunyuan_v1_dense": true, "qwen3_next": true,
		"deepseek_v3":      true, // its releases have 671 B parameters: no card of the table holds them in 4 bits
		"granitemoehybrid": true, // releases.json has no config.json of Granite 4
		"nemotron_h":       true, // nor one of Nemotron 3
		"falcon_h1":        true, // nor one of Falcon-H1
		"bamba":            true, // nor one of Bamba
		// rows of google/gemma-3 are of the language model, whose text_config is gemma3_text
		"gemma3": true,
		// their language models are Llama's, and images train on the CPU
		"idefics3": true, "smolvlm": true,
		"ministral": true, // its only release names its model_type mistral
		// rows of google/gemma-4 are of the language model, whose text_config is gemma4_text
		"gemma4":         true,
		"gemma4_unified": true, // google/gemma-4-12B-it's row is of the language model
		// rows of Qwen3.5 are of the language model, whose text_config is one of the _text forms
		"qwen3_5": true, "qwen3_5_moe": true,
	}
	for _, r := range inRoot(t) {
		raw, err := r.raw()
		if err != nil {
			t.Fatal(err)
		}
		config, err := families.ParseConfig(raw)
		if err != nil {
			t.Fatal(err)
		}
		seen[config.ModelType] = true
	}
	for _, family := range slices.Sorted(maps.Keys(families.Table)) {
		if !seen[family] {
			t.Errorf("%s has no release in releases.json, and so no row in docs/GPU.md", family)
		}
	}
}

// TestTableIsFresh plans some rows again, for the smallest card and the largest: the whole table takes minutes.
func TestTableIsFresh(t *testing.T) {
	all, again := inRoot(t), 0
	rows, _ := tableRows(t)
	for _, r := range all {
		if !slices.Contains(sample, r.Name) {
			continue
		}
		again++
		of, done, err := r.search(1, []string{"all-linear"})
		if err != nil {
			t.Fatal(err)
		}
		cells := strings.Split(rows[r.Name], "|")
		for _, i := range []int{0, len(cards) - 1} {
			got, err := of.cell(cards[i].chip)
			if err != nil {
				t.Errorf("%s on %s GB: %v", r.Name, cards[i].gigabytes, err)
			} else if got = strings.Trim(got, " |"); got != strings.TrimSpace(cells[3+i]) {
				t.Errorf("%s on %s GB: docs/GPU.md has %q, the plan %q", r.Name, cards[i].gigabytes,
					strings.TrimSpace(cells[3+i]), got)
			}
		}
		done()
	}
	if again != len(sample) {
		t.Errorf("%d of %d rows", again, len(sample))
	}
}

// sample is of each kind of layer: windows, caps, fused projections, experts in NF4 and in MXFP4.
var sample = []string{"Qwen/Qwen3-8B", "google/gemma-2b", "google/gemma-2-9b", "microsoft/phi-4",
	"allenai/OLMo-2-1124-7B", "openai/gpt-oss-20b", "Qwen/Qwen1.5-MoE-A2.7B"}

// tableRows are the rows of docs/GPU.md by release, and the releases in their order.
func tableRows(t *testing.T) (rows map[string]string, names []string) {
	t.Helper()
	rows, err := oldRows(filepath.FromSlash("docs/GPU.md"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.FromSlash("docs/GPU.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), begin)
	table, _, _ = strings.Cut(table, end)
	for i, line := range slices.Collect(strings.Lines(table)) {
		if i >= 2 {
			names = append(names, strings.TrimSpace(strings.Split(line, "|")[1]))
		}
	}
	return rows, names
}
