package config

import (
	"reflect"
	"testing"

	"github.com/tierlora/tierlora/dataset"
)

const bare = "base_model: m\noutput_dir: out\n"

const twoSources = bare + `dataset:
  sources:
    - path: a.jsonl
      split: train[:5%]
      weight: 0.5
    - {path: org/name, name: main, revision: v1, format: completion, fields: {prompt: Question, completion: a.0.b}}
`

func TestSourcesOfAConfig(t *testing.T) {
	want := []dataset.Source{
		{Path: "a.jsonl", Split: "train[:5%]", Weight: 0.5},
		{Path: "org/name", Name: "main", Revision: "v1", Format: "completion",
			Fields: map[string]string{"prompt": "Question", "completion": "a.0.b"}, Weight: 1},
	}
	if got := merged(t, twoSources, nil, nil).Dataset.Sources; !reflect.DeepEqual(got, want) {
		t.Errorf("file:\n%+v\n%+v", got, want)
	}
	rendered := Render(merged(t, twoSources, nil, nil))
	if got := merged(t, string(rendered), nil, nil).Dataset.Sources; !reflect.DeepEqual(got, want) {
		t.Errorf("rendered:\n%s\n%+v", rendered, got)
	}
	if err := checkText(t, compiledSchema(t), []byte(twoSources)); err != nil {
		t.Errorf("the schema refuses it: %v", err)
	}
	sets := []string{`dataset.sources=[{path: b.csv, split: "train+test"}]`, "dataset.sources[0].weight=2",
		"dataset.sources[0].fields.prompt=q.r", "dataset.sources[0].split=test[:3]"}
	got := merged(t, twoSources, nil, sets).Dataset.Sources
	if want := []dataset.Source{{Path: "b.csv", Split: "test[:3]", Weight: 2,
		Fields: map[string]string{"prompt": "q.r"}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("--set:\n%+v\n%+v", got, want)
	}
	got = merged(t, bare, []string{"TRAINER_DATASET_SOURCES=[{path: c.parquet}]"},
		[]string{"dataset.sources[0].name="}).Dataset.Sources
	if want := []dataset.Source{{Path: "c.parquet", Weight: 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("environment:\n%+v\n%+v", got, want)
	}
}

// TestBrokenDataSources: what is wrong with lists of sources, and the exact words that say so.
func TestBrokenDataSources(t *testing.T) {
	const head = bare + "dataset:\n  sources:\n"
	for _, c := range []struct{ name, text, set, want string }{
		{"beside a path", bare + "dataset: {path: a, sources: [{path: b}]}\n", "",
			"run.yaml:3:29: dataset.sources: dataset.path is set too: keep one"},
		{"no list", head + "    path: a\n", "",
			"run.yaml:5:5: dataset.sources: expected a list of sections with keys of their own, got keys and values"},
		{"a path alone", head + "    - a.jsonl\n", "",
			"run.yaml:5:7: dataset.sources[0]: expected a section with keys of its own, got the text \"a.jsonl\""},
		{"no path", head + "    - {split: train}\n", "", "run.yaml:5:7: dataset.sources[0].path is missing: name a " +
			"data file, a folder or a hub data set such as org/name"},
		{"unknown key", head + "    - {path: a}\n    - {path: b, wieght: 2}\n", "",
			"run.yaml:6:17: dataset.sources[1].wieght: unknown key; the nearest is dataset.sources[1].weight"},
		{"a key twice", head + "    - {path: a, path: b}\n", "",
			"run.yaml:5:17: dataset.sources[0].path: given twice, first in line 5"},
		{"Axolotl's name", head + "    - {path: a, subset: x}\n", "",
			"run.yaml:5:17: dataset.sources[0].subset: unknown key; use dataset.sources[].name"},
		{"weight 0", head + "    - {path: a, weight: 0}\n", "",
			"run.yaml:5:25: dataset.sources[0].weight: 0 must be above 0 and at most 1000"},
		{"negative weight", head + "    - {path: a, weight: -1}\n", "",
			"run.yaml:5:25: dataset.sources[0].weight: -1 must be above 0 and at most 1000"},
		{"weight that is no number", head + "    - {path: a, weight: .nan}\n", "",
			"run.yaml:5:25: dataset.sources[0].weight: expected a number, got .nan"},
		{"huge weight", head + "    - {path: a, weight: 1001}\n", "",
			"run.yaml:5:25: dataset.sources[0].weight: 1001 must be above 0 and at most 1000"},
		{"split", head + "    - {path: a}\n    - {path: b, split: \"train[5\"}\n", "",
			"run.yaml:6:24: dataset.sources[1].split has the term \"train[5\": write train, train[:5%], " +
				"train[10:200] or train[-5%:]"},
		{"percent", head + "    - {path: b, split: \"train[:101%]\"}\n", "",
			"run.yaml:5:24: dataset.sources[0].split has the term \"train[:101%]\": percent lie in -100 to 100"},
		{"mixed units", head + "    - {path: b, split: \"train[1:5%]\"}\n", "",
			"run.yaml:5:24: dataset.sources[0].split has the term \"train[1:5%]\", which counts one end in rows and " +
				"the other in percent"},
		{"the same twice", head + "    - {path: a}\n    - {path: b}\n    - {path: a, split: train}\n", "",
			"run.yaml:7:7: dataset.sources[2] has the rows of dataset.sources[0]: raise its weight instead"},
		{"format", head + "    - {path: a, format: alpacca}\n", "", "run.yaml:5:25: dataset.sources[0].format: " +
			"\"alpacca\" is not one of auto, alpaca, chat_completion, classification, completion, messages, " +
			"pairs, preference, prompts, rollouts, segments, sharegpt, text, token_classification, tokenized, " +
			"tokenized_classification, tokenized_preference, tokenized_token_classification, " +
			"tokenized_unpaired, unpaired; did you mean alpaca?"},
		{"fields", head + "    - {path: a, format: text, fields: {txt: b}}\n", "",
			"run.yaml:5:39: dataset.sources[0].fields: format text has no field \"txt\", it has text; did you mean " +
				"text?"},
		{"embedded", head + "    - {path: embedded:gsm8k_300.jsonl}\n", "",
			"run.yaml:5:14: dataset.sources[0].path: embedded rows stand alone: name them in dataset.path"},
		{"no such place", head + "    - {path: a}\n", "dataset.sources[3].weight=2",
			"--set 'dataset.sources[3].weight=2': there is no such place: dataset.sources has 1"},
		{"unknown key of a place", head + "    - {path: a}\n", "dataset.sources[0].wight=2",
			"--set 'dataset.sources[0].wight=2': unknown key; the nearest is dataset.sources[0].weight"},
		{"wrong kind at a place", head + "    - {path: a}\n", "dataset.sources[0].weight=much",
			"--set 'dataset.sources[0].weight=much': expected a number, got the text \"much\""},
		{"validation twice", bare + "dataset: {path: a, val_split: 0.1, val_sources: [{path: b}]}\n", "",
			"run.yaml:3:31: dataset.val_split and val_sources are both set: keep one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sets []string
			if c.set != "" {
				sets = []string{c.set}
			}
			got := problemsOf(c.text, nil, sets)
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
	for _, text := range []string{"    path: a\n", "    - a\n", "    - {split: train}\n",
		"    - {path: a, wieght: 2}\n", "    - {path: a, weight: 0}\n", "    - {path: a, format: x}\n"} {
		if checkText(t, compiledSchema(t), []byte(head+text)) == nil {
			t.Errorf("the schema takes\n%s", text)
		}
	}
}
