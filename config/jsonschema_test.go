package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/internal/golden"
)

// compiledSchema is what trainer config-schema prints, as another program's checker reads it.
func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	var text bytes.Buffer
	if err := WriteJSONSchema(&text); err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(&text)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("config.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("config.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkText is what the schema says of a configuration's text.
func checkText(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

func TestSchemaTakesEveryConfig(t *testing.T) {
	s := compiledSchema(t)
	n := 0
	err := filepath.WalkDir(filepath.Join(golden.Root(t), "configs"), func(path string, d os.DirEntry,
		err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		if err := checkText(t, s, text); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		link, ok := strings.CutPrefix(line, SchemaLine)
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), link)); !ok || err != nil {
			t.Errorf("%s begins with %q: no schema there for an editor (%v)", path, line, err)
		}
		return nil
	})
	names := append(configs.Names(), configs.Examples()...)
	if err != nil || n != len(names) {
		t.Errorf("%d files checked, %d are built in (%v)", n, len(names), err)
	}
	// A rendered configuration has every key.
	for _, name := range names {
		text, _ := configs.Read(name)
		if err := checkText(t, s, Render(merged(t, string(text), nil, nil))); err != nil {
			t.Errorf("%s, rendered: %v", name, err)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	s := compiledSchema(t)
	if err := checkText(t, s, []byte(least)); err != nil {
		t.Fatalf("the least configuration: %v", err)
	}
	for text, want := range map[string]string{
		least + "sed: 1\n":                              "additional properties 'sed' not allowed",
		least + "training: {learning_rte: 1e-4}\n":      "additional properties 'learning_rte' not allowed",
		least + "training: {learning_rate: fast}\n":     "got string, want number",
		least + "training: {max_steps: 1.5}\n":          "got number, want integer",
		least + "training: {batch_size: 0}\n":           "minimum: got 0, want 1",
		least + "training: {lr_scheduler: cosin}\n":     "value must be one of",
		least + "lora: {dropout: 1}\n":                  "exclusiveMaximum: got 1, want 1",
		least + "lora: {target_modules: {q_proj: 1}}\n": "want string or array",
		least + "lora: {rank_pattern: {q_proj: 0}}\n":   "minimum: got 0, want 1",
		least + "vram: 8 gigs\n":                        "does not match pattern",
		least + "seed: -1\n":                            "minimum: got -1, want 0",
		"base_model: m\noutput_dir: out\n":              "missing property 'dataset'",
		"base_model: m\noutput_dir: out\ndataset: {}\n": "missing property 'path'",
	} {
		if err := checkText(t, s, []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nis answered by %v, want %q", text, err, want)
		}
	}
}

// about are the problems of a configuration that name the key.
func about(path, value string) (found []string) {
	text := least
	if strings.HasPrefix(path, "quantization.") {
		text += "adapter: qlora\n"
	}
	if path == "training.eval_steps" || strings.HasPrefix(path, "expect.eval_") {
		text = strings.Replace(text, "d.jsonl", "d.jsonl, val_split: 0.1", 1)
	}
	if path == "training.epochs" { // 0 is for runs whose steps are counted
		text += "training: {max_steps: 1}\n"
	}
	if path == "expect.eval_loss_decrease" {
		text += "training: {eval_on_start: true}\n"
	}
	_, problems := Merge("run.yaml", []byte(text), nil, []string{path + "=" + value})
	for _, p := range problems {
		// which other keys decide, no value
		if KeyOf(p.Text) == path && !strings.HasPrefix(p.Text, path+": does nothing ") {
			found = append(found, p.Text)
		}
	}
	return found
}

// Listed values are the values that a run accepts, and every text that is not free is listed.
func TestChoicesAreTheRuns(t *testing.T) {
	const nonsense = "no-such-value"
	for _, k := range Root.Leaves() {
		list := k.Choices
		for _, v := range list {
			if got := about(k.Path, fmt.Sprint(v)); v != "" && got != nil {
				t.Errorf("%s: %v is listed and refused: %v", k.Path, v, got)
			}
		}
		if k.Kind != KindText {
			continue
		}
		got := about(k.Path, nonsense)
		switch refused := len(got) > 0; {
		case refused && list == nil && k.form().pattern == "":
			t.Errorf("%s takes not every text (%v): list its values in the tag choices", k.Path, got)
		case !refused && list != nil:
			t.Errorf("%s has a list of values and takes %q", k.Path, nonsense)
		case list != nil:
			_, said, _ := strings.Cut(got[0], nonsense)
			for _, word := range strings.FieldsFunc(said, func(r rune) bool {
				return strings.ContainsRune(`" ,;:`, r)
			}) {
				if !filler[word] && !slices.Contains(list, word) {
					t.Errorf("%s: %q is not listed, the program says %s", k.Path, word, got[0])
				}
			}
		}
	}
}

// filler are words of the messages about a value.
var filler = map[string]bool{"is": true, "not": true, "one": true, "of": true, "or": true, "want": true, "use": true,
	"supported": true}

func TestPatternsAreTheRuns(t *testing.T) {
	s := compiledSchema(t)
	for _, k := range Root.Leaves() {
		path := k.Path
		if k.form().pattern == "" {
			continue
		}
		for _, value := range []string{"8GiB", "2 GB", "1.5gb", "4096", "100B", "8 gigs", "GB", "-1GB", "1e9",
			"8GiBs", ".5GB"} {
			nested := path + ": '" + value + "'"
			if section, name, ok := strings.Cut(path, "."); ok {
				nested = section + ": {" + name + ": '" + value + "'}"
			}
			run, editor := about(path, value), checkText(t, s, []byte(least+nested+"\n"))
			if (run == nil) != (editor == nil) {
				t.Errorf("%s: %q: the run says %v, the schema %v", path, value, run, editor)
			}
		}
	}
}

// Limits are the bounds that a run accepts: the bound itself, the next number beyond it not.
func TestLimitsAreTheRuns(t *testing.T) {
	eachNumber(func(path string, k *Key, whole bool) {
		key, limit := k.Path, k.Range
		if limit == nil {
			if k.Choices == nil {
				t.Errorf("%s is a number without limits", key)
			}
			return
		}
		try := func(v float64, ok bool) {
			value := fmt.Sprint(v)
			if whole {
				value = fmt.Sprintf("%.0f", v)
			}
			if got := about(path, value); (got == nil) != ok {
				t.Errorf("%s: %s should be accepted: %v, the run says %q", path, value, ok, got)
			}
		}
		step := func(v, to float64) float64 {
			if whole {
				return v + math.Copysign(1, to-v)
			}
			return math.Nextafter(v, to)
		}
		try(limit.Low, !limit.LowOpen)
		try(step(limit.Low, math.Inf(-1)), false)
		if key == "training.loss_scale" || key == "seed" {
			return // powers of two; the largest whole number there is
		}
		try(step(limit.Low, math.Inf(1)), true)
		if !math.IsInf(limit.High, 0) {
			try(limit.High, !limit.HighOpen)
			try(step(limit.High, math.Inf(1)), false)
		}
	})
}

// eachNumber visits the keys that take numbers: path is where to set one.
func eachNumber(see func(path string, k *Key, whole bool)) {
	isNumber := func(k Kind) bool { return k == KindWhole || k == KindUnsigned || k == KindNumber }
	for _, k := range Root.Leaves() {
		if k.Kind == KindTable && isNumber(k.Elem) {
			entry := ".q_proj"
			if strings.HasPrefix(k.Path, "expect.") { // its entries are numbers that the run reports
				entry = ".loss"
			}
			see(k.Path+entry, k, k.Elem != KindNumber)
		} else if isNumber(k.Kind) {
			see(k.Path, k, k.Kind != KindNumber)
		}
	}
}
