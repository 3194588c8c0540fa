package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/tokenizer"
	"github.com/tierlora/tierlora/train"
)

// convergence are the tiers that judge what was learnt.
var convergence = []string{"cpu_smollm2_quick", "cpu_smollm2_convergence", "gpu_smollm2_convergence",
	"gpu_tinyllama_extended", "gpu_llama7b_full"}

// TestConvergenceTiersHoldOut: they train rows that do not come twice and judge the loss on others, before and after.
func TestConvergenceTiersHoldOut(t *testing.T) {
	folder, err := configs.Model("stories260K")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.LoadFS(folder, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range convergence {
		text, _ := configs.Read(name)
		s := merged(t, string(text))
		if !s.Training.EvalOnStart || s.Expect.EvalLossDecrease <= 0 {
			t.Errorf("%s does not judge held-out loss: %+v", name, s.Expect)
		}
		if embedded := strings.HasPrefix(s.Expect.Reference, session.EmbeddedPrefix); embedded != strings.Contains(
			name, "smollm2") {
			t.Errorf("%s: reference %q", name, s.Expect.Reference)
		}
		s.Dataset.MaxLength, s.Dataset.OnTruncated = 1<<20, dataset.TruncatedKeep
		set, _, err := openData(context.Background(), s, tok, folder, session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if need := s.Training.MaxSteps * s.Training.BatchSize * s.Training.GradientAccumulationSteps; set.Train.Len() < need || set.Val.Len() < 64 {
			t.Errorf("%s: %d rows and %d held out, want %d and 64", name, set.Train.Len(), set.Val.Len(), need)
		}
		for i := range set.Val.Len() {
			for j := range set.Train.Len() {
				if set.Val.Length(i) == set.Train.Length(j) && reflect.DeepEqual(set.Val.Row(i).IDs,
					set.Train.Row(j).IDs) {
					t.Errorf("%s: row %d is held out and trained", name, i)
				}
			}
		}
	}
}

// TestOneReferenceForBothDevices: the CPU's tier and the GPU's are one run on two devices.
func TestOneReferenceForBothDevices(t *testing.T) {
	var specs []train.Spec
	for _, name := range []string{"cpu_smollm2_convergence", "gpu_smollm2_convergence"} {
		text, _ := configs.Read(name)
		s := merged(t, string(text))
		s.Device, s.VRAM, s.OutputDir, s.Expect.MaxVRAM = "", "", "", ""
		specs = append(specs, s)
	}
	if !reflect.DeepEqual(specs[0], specs[1]) {
		t.Errorf("%+v\n%+v", specs[0], specs[1])
	}
}

// TestReferencesAreOfTheirTiers needs the model, and no training: rows, configuration and weights are those of the
// kept curves, and no row comes twice.
func TestReferencesAreOfTheirTiers(t *testing.T) {
	dir := golden.SmolLM2(t)
	for _, name := range convergence[:3] {
		text, _ := configs.Read(name)
		s := merged(t, string(text))
		s.BaseModel = dir
		env := session.Env{Data: configs.Data}
		recipe, err := train.NewRecipe(context.Background(), s, train.Env{Env: env})
		if err != nil {
			t.Fatal(err)
		}
		r, err := train.OpenReference(s.Expect.Reference, env)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(recipe.Subject, r.Subject) {
			t.Errorf("%s is\n%+v\nits reference\n%+v", name, recipe.Subject, r.Subject)
		}
		seen := map[string]bool{}
		for i, step := range recipe.Train {
			if key := fmt.Sprint(step.Batches); seen[key] {
				t.Errorf("%s: step %d trains a row again", name, i+1)
			} else {
				seen[key] = true
			}
		}
		if len(seen) != s.Training.MaxSteps || len(recipe.Validation) != 22 {
			t.Errorf("%s: %d steps, %d held-out rows", name, len(seen), len(recipe.Validation))
		}
	}
}

// TestTrainBesideAReference: what a user sees of the criterion, and that a file that is none is refused before
// training.
func TestTrainBesideAReference(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	curve, err := os.ReadFile(filepath.Join(golden.Root(t), "train", "testdata", "stories_reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, map[string]string{"ref.json": string(curve), "damaged.json": string(curve[:500])})
	run := append([]string{"train", "--quiet", "--set", "dataset.val_path=embedded:gsm8k_test_64.jsonl", "--set",
		"dataset.max_length=256", "--set", "training.eval_on_start=true"}, small[:2]...)
	run = append(run, small[4:]...)
	code, out, errOut := trainer(t, dir, nil, "", append(run, "--set", "expect.reference=damaged.json")...)
	if code != 2 || out != "" ||
		!strings.HasPrefix(errOut,
			"trainer: expect.reference: read damaged.json: no reference curve of scripts/reference_curve.py: line ") {
		t.Errorf("a damaged file: exit code %d, %q, %s", code, out, errOut)
	}
	code, out, errOut = trainer(t, dir, nil, "", append(run, "--json", "--set", "expect.reference=ref.json")...)
	var result train.Result
	if err := json.Unmarshal([]byte(out), &result); err != nil || code != 1 || len(result.Expect) != 1 ||
		result.Expect[0].Met || result.EvalBefore == nil {
		t.Errorf("exit code %d, %v, %s", code, err, out)
	}
	for _, want := range []string{"expect.reference: this run will fail its comparison with ref.json: the run has 3 " +
		"steps, the reference 20",
		"trainer: expectation missed: reference ref.json: not comparable: the run has 3 steps"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("no %q in\n%s", want, errOut)
		}
	}
	if c := result.Expect[0].Comparison; c == nil || c.Steps != 3 || len(c.NotComparable) < 3 ||
		c.MadeBy["peft"] == "" {
		t.Errorf("%+v", c)
	}
}

func TestInspectSteps(t *testing.T) {
	dir := t.TempDir()
	args := append([]string{"inspect", "steps", "--set", "dataset.max_length=256"}, small[:2]...)
	args = append(args, small[4:]...)
	code, out, errOut := trainer(t, dir, nil, "", args...)
	if lines := strings.Split(out, "\n"); code != 0 || len(lines) != 9 || !strings.HasPrefix(lines[0],
		"base weights  ") || !strings.HasPrefix(lines[7], "     3 ") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
	code, out, _ = trainer(t, dir, nil, "", append(args, "--json")...)
	var r train.Recipe
	if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || len(r.Train) != 3 ||
		len(r.Train[0].Batches[0]) != 2 || r.Configuration["lora.r"] != "8" || len(r.Base) != 64 {
		t.Errorf("exit code %d, %v, %+v", code, err, r.Subject)
	}
	if ids, labels := r.Train[0].Batches[0][0].IDs, r.Train[0].Batches[0][0].Labels; len(ids) != len(labels) ||
		labels[0] != dataset.Ignore {
		t.Errorf("%v, %v", ids, labels)
	}
	if code, _, errOut := trainer(t, dir, nil, "", append(args, "--set", "dataset.streaming=true")...); code != 1 ||
		!strings.Contains(errOut, "dataset.streaming: the rows of a stream are not known") {
		t.Errorf("a stream: exit code %d, %s", code, errOut)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("it wrote %v, %v", entries, err)
	}
}
