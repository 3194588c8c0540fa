package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/session"
)

// mergedHeads merges runs into folders, by their names.
func mergedHeads(t *testing.T, runs map[string]Spec) map[string]string {
	t.Helper()
	folders := map[string]string{}
	for name, s := range runs {
		folders[name] = filepath.Join(t.TempDir(), name)
		report, err := export.Merge(t.Context(), export.MergeOptions{Model: s.BaseModel,
			Adapters: export.One(s.OutputDir), Out: folders[name]}, oneWorker.Env)
		if err != nil {
			t.Fatal(err)
		}
		if h := report.Head; h == nil || h.Texts != len(export.DefaultCheck) || !(h.MaxDifference <= 1e-4) {
			t.Errorf("%s: %+v", name, h)
		}
	}
	return folders
}

// TestMergedHeadsEqualAdapters checks that merged folders with a head give the numbers of base and adapter.
func TestMergedHeadsEqualAdapters(t *testing.T) {
	runs := headRuns(t)
	for name, dir := range mergedHeads(t, runs) {
		p, err := infer.NewPredictor(t.Context(), session.Options{Model: dir, Device: "cpu"},
			infer.PredictorOptions{Name: name}, oneWorker.Env)
		if err != nil {
			t.Fatal(err)
		}
		got, own := predict(t, p, passages(0)), predictorOf(t, runs, name)
		for i, want := range predict(t, own, passages(0)) {
			for k, x := range want {
				if !(math.Abs(float64(x-got[i][k])) <= 1e-4) {
					t.Fatalf("%s, text %d: %v, want %v", name, i, got[i], want)
				}
			}
		}
		if a, b := p.Models()[0], own.Models()[0]; a.Pooling != b.Pooling || a.Head.Problem != b.Head.Problem ||
			a.Task != b.Task {
			t.Errorf("%s: %+v, want %+v", name, a, b)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		_, err = infer.NewGenerator(t.Context(), session.Options{Model: dir, Device: "cpu"}, "", oneWorker.Env)
		if err == nil {
			s := testSpec(t, 1)
			s.BaseModel = dir
			_, err = Start(t.Context(), s, oneWorker)
		}
		if want := "the base model has no vocabulary head"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: training text on it: %v, want %s", name, err, want)
		}
	}
}

// TestRewardModelScores checks that adapter and merged folder score exchanges alike, and that others are refused.
func TestRewardModelScores(t *testing.T) {
	runs := headRuns(t)
	folder := mergedHeads(t, map[string]Spec{"reward": runs["reward"]})["reward"]
	var all []infer.Exchange
	for _, p := range passages(0) {
		at := len(p.IDs) / 2
		all = append(all, infer.Exchange{Prompt: p.IDs[:at], Answer: p.IDs[at:]})
	}
	var want []float64
	for _, dir := range []string{runs["reward"].OutputDir, folder} {
		r, err := infer.OpenRewardModel(t.Context(), dir, 128, session.Options{Model: map[bool]string{
			true: runs["reward"].BaseModel}[dir != folder], Device: "cpu"}, oneWorker.Env)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Scores(t.Context(), all)
		if err = errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		for i := range got {
			if !(math.Abs(got[i]-want[i]) <= 1e-4) || i > 0 && got[i] == got[0] {
				t.Fatalf("%s: %v, want %v", dir, got, want)
			}
		}
	}
	dir := runs["class"].OutputDir
	_, err := infer.OpenRewardModel(t.Context(), dir, 0, session.Options{Model: runs["class"].BaseModel, Device: "cpu"},
		oneWorker.Env)
	if want := "open reward model " + dir + ": it has task_type SEQ_CLS and 3 labels, want SEQ_CLS and 1"; err == nil ||
		err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// mergedNumbers loads merged folders with transformers alone, in float64, and prints for each list of token ids the
// scores or the vector, by the pooling that the files of sentence-transformers name.
const mergedNumbers = `
import json, os, sys, torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification
rows, all = json.load(open(sys.argv[1])), []
for folder in json.loads(sys.argv[2]):
    kind = AutoConfig.from_pretrained(folder).architectures[0]
    of = (AutoModelForSequenceClassification if kind.endswith("ForSequenceClassification") else
          AutoModelForTokenClassification if kind.endswith("ForTokenClassification") else AutoModel)
    model, info = of.from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    assert type(model).__name__ == kind, (type(model), kind)
    model, numbers = model.double().eval(), []
    with torch.no_grad():
        for ids in rows:
            out = model(input_ids=torch.tensor([ids]))
            if of is not AutoModel:
                numbers.append(out.logits[0].flatten().tolist())
                continue
            modules = json.load(open(folder + "/modules.json"))
            pooling = json.load(open(os.path.join(folder, modules[1]["path"], "config.json")))
            hidden = out.last_hidden_state[0]
            assert pooling["word_embedding_dimension"] == hidden.shape[1]
            vector = hidden[-1] if pooling["pooling_mode_lasttoken"] else hidden.mean(0)
            numbers.append((vector / vector.norm() if len(modules) > 2 else vector).tolist())
    all.append({"numbers": numbers, "labels": list(model.config.id2label.values()) if of is not AutoModel else None})
print(json.dumps(all))
`

// sentenceVectors loads folders with sentence-transformers and prints the vectors of texts.
const sentenceVectors = `
import json, sys
from sentence_transformers import SentenceTransformer
texts, all = json.loads(sys.argv[1]), []
for folder in json.loads(sys.argv[2]):
    model = SentenceTransformer(folder, device="cpu", model_kwargs={"attn_implementation": "eager"})
    vectors = model.encode(texts, batch_size=1)
    all.append({"numbers": vectors.tolist(), "similarity": model.similarity_fn_name,
                "length": model.max_seq_length, "modules": [type(m).__name__ for m in model]})
print(json.dumps(all))
`

// TestVectorsLoadInSentenceTransformers checks that sentence-transformers loads merged folders and gives the vectors of
// base and adapter, by the pooling and the similarity of training.
func TestVectorsLoadInSentenceTransformers(t *testing.T) {
	python := pythonWith(t, "torch, transformers, sentence_transformers")
	all := headRuns(t)
	runs := map[string]Spec{"mean": all["mean"], "last": all["last"]}
	folders := mergedHeads(t, runs)
	texts := []string{"Once upon a time", "a dog.", "The little girl was happy, and it rained."}
	list, err := json.Marshal([]string{folders["mean"], folders["last"]})
	if err != nil {
		t.Fatal(err)
	}
	asked, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	var got []struct {
		Numbers    [][]float64
		Similarity string
		Length     int
		Modules    []string
	}
	runPython(t, python, sentenceVectors, &got, string(asked), string(list))
	for i, name := range []string{"mean", "last"} {
		p := predictorOf(t, runs, name)
		var own []infer.Passage
		for _, text := range texts {
			own = append(own, infer.Passage{IDs: p.Base.Tokenizer.IDs(text, true)})
		}
		samePassages(t, name, predict(t, p, own), got[i].Numbers, 1e-4)
		modules, similarity := []string{"Transformer", "Pooling", "Normalize"}, "cosine"
		if name == "last" {
			modules, similarity = modules[:2], "dot"
		}
		if !slices.Equal(got[i].Modules, modules) || got[i].Similarity != similarity ||
			got[i].Length != runs[name].Dataset.MaxLength {
			t.Errorf("%s: %v, similarity %s, %d tokens, want %v, %s, %d", name, got[i].Modules, got[i].Similarity,
				got[i].Length, modules, similarity, runs[name].Dataset.MaxLength)
		}
	}
}

// TestMergedHeadsLoadInTransformers checks that transformers loads merged folders by their classes without a missing or
// an unexpected tensor, and gives the numbers of base and adapter.
func TestMergedHeadsLoadInTransformers(t *testing.T) {
	python := pythonWith(t, "torch, transformers")
	runs := headRuns(t)
	folders := mergedHeads(t, runs)
	var ids [][]int32
	for _, p := range passages(0) {
		ids = append(ids, p.IDs)
	}
	data := filepath.Join(t.TempDir(), "ids.json")
	var names, dirs []string
	for name, dir := range folders {
		names, dirs = append(names, name), append(dirs, dir)
	}
	raw, err := json.Marshal(ids)
	if err == nil {
		err = os.WriteFile(data, raw, 0o644)
	}
	list, failed := json.Marshal(dirs)
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Numbers [][]float64
		Labels  []string
	}
	runPython(t, python, mergedNumbers, &all, data, string(list))
	for i, name := range names {
		samePassages(t, name, predict(t, predictorOf(t, runs, name), passages(0)), all[i].Numbers, 1e-4)
		if want := map[string]int{"class": 3, "token": 3, "reward": 1}[name]; len(all[i].Labels) != want {
			t.Errorf("%s: labels %v, want %d", name, all[i].Labels, want)
		}
	}
	if len(all) != len(runs) {
		t.Error(fmt.Sprint(len(all), " folders"))
	}
}
