// Package importer translates configurations of other training programs into settings of this program. It reads files
// as text and never runs code from them.
package importer

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxBytes bounds a file that is read. A notebook may contain pictures.
const MaxBytes = 16 << 20

// maxConfigBytes bounds a file that is not a notebook.
const maxConfigBytes = 1 << 20

// Group says what happened to a key.
type Group string

// What happens to a key: its value is taken unchanged, taken with a stated difference, or not taken.
const (
	Taken     Group = "taken"
	Different Group = "different"
	Missing   Group = "no counterpart"
)

// Entry records what happened to one key of the file, or to one default that the file relies on.
type Entry struct {
	Group Group  `json:"group"`
	Class Class  `json:"class,omitempty"` // class of a key that is not taken unchanged
	Key   string `json:"key"`
	Value string `json:"value"`
	Line  int    `json:"line,omitempty"`
	To    string `json:"to,omitempty"` // To is our key.
	As    string `json:"as,omitempty"` // As is the value of our key.
	// Say describes the difference, or why there is no counterpart and what to do.
	Say     string `json:"say,omitempty"`
	Default bool   `json:"default,omitempty"`
}

// Setting is a value for one of our keys, and its origin.
type Setting struct {
	Path  string
	Value any // as in a configuration file; for dataset.sources a []any of Map
	From  string
}

// Result is a translated configuration.
type Result struct {
	Program  *Program
	Settings []Setting
	Entries  []Entry
	Refused  string // the key and value that make the file another kind of training; then nothing is translated
}

// Kind is the type of value that one of our keys takes.
type Kind int

// The types of keys.
const (
	None Kind = iota // no such key
	TextKind
	Whole
	Number
	Truth
	List
	Table
	Rows
)

// Options are what a translation needs from the calling program.
type Options struct {
	Kind func(path string) Kind   // type of one of our keys
	Own  func(name string) string // path of our key whose last name is name; "" = none
	// ReadFile reads a file that the configuration names, such as LLaMA-Factory's dataset_info.json; nil = such files
	// are not read.
	ReadFile func(path string) ([]byte, error)
}

// Input is a parsed file whose program is known.
type Input struct {
	Program *Program
	entries []entry
	calls   map[string]bool // calls that were found in a Python program
	made    bool            // a Python program makes the rows by its own code
	maker   string          // the call that makes the rows
	renders bool            // the program calls apply_chat_template
}

// entry is a key of the file with its display name.
type entry struct {
	Pair
	shown  string
	peers  string // the program whose default the value is; "" = the file gives the value
	silent bool   // the entry is part of another entry
}

// Read detects which program a configuration file belongs to, unless from names it, and parses the file.
func Read(name string, data []byte, from string) (*Input, error) {
	var program *Program
	if from != "" {
		if program = Find(from); program == nil {
			return nil, fmt.Errorf("there is no program %q to import from; there are %s", from,
				strings.Join(Names(), ", "))
		}
	}
	ext := strings.ToLower(filepath.Ext(name))
	limit := maxConfigBytes
	if ext == ".ipynb" {
		limit = MaxBytes
	}
	switch {
	case len(data) > limit:
		return nil, fmt.Errorf("it is larger than %d bytes: this is no configuration", limit)
	case len(bytes.TrimSpace(data)) == 0:
		return nil, errors.New("it is empty")
	case !utf8.Valid(data):
		return nil, errors.New("it is not UTF-8 text")
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	switch ext {
	case ".ipynb", ".py":
		return readPython(ext, data, program)
	case ".sh":
		return readScript(data, program)
	}
	parse := parseYAML
	if ext == ".json" {
		parse = parseJSON
	}
	m, err := parse(data)
	if err != nil {
		return nil, err
	}
	if program == nil {
		if program, err = detect(m); err != nil {
			return nil, err
		}
	}
	if program.python {
		return nil, fmt.Errorf("arguments of %s stand in a notebook (.ipynb) or a script (.py)", program.Title)
	}
	in := &Input{Program: program}
	if program.nested {
		resolve(m)
	}
	if program.expand != nil {
		in.entries = program.expand(m)
		return in, nil
	}
	in.flatten(m, "", program.nested)
	return in, nil
}

// readScript finds the training command of a shell script.
func readScript(data []byte, program *Program) (*Input, error) {
	if program != nil && program.Name != "ms-swift" {
		return nil, fmt.Errorf("%s has no configuration in scripts of the shell", program.Title)
	}
	m, command, err := readShell(string(data))
	if err != nil {
		return nil, err
	}
	in := &Input{Program: Find("ms-swift"), calls: map[string]bool{command: true}}
	in.flatten(m, "", false)
	return in, nil
}

// flatten lists the keys; for nested configurations also the keys inside tables, with dots.
func (in *Input) flatten(m Map, prefix string, nested bool) {
	for _, p := range m {
		inner, table := p.Value.(Map)
		p.Key = prefix + p.Key
		if nested && table && len(inner) > 0 && !slices.Contains(whole, p.Key) {
			in.flatten(inner, p.Key+".", nested)
			continue
		}
		if s, text := p.Value.(string); text && nested && strings.Contains(s, "${") {
			p.Value = Code(s) // a reference to another key, which that program resolves
		}
		in.entries = append(in.entries, entry{Pair: p, shown: shorten(p.Key)})
	}
}

// trainingCalls are calls that identify a Python program that trains: it has at least one of them. A program that only
// loads a model generates text.
var trainingCalls = []string{"get_peft_model", "LoraConfig", "IA3Config", "MissConfig", "BoneConfig",
	"VeraConfig", "LoKrConfig", "OFTConfig",
	"SFTConfig", "SFTTrainer", "UnslothTrainer",
	"TrainingArguments", "UnslothTrainingArguments", "DPOTrainer", "CPOTrainer", "ORPOTrainer", "KTOTrainer",
	"DPOConfig", "CPOConfig", "ORPOConfig", "KTOConfig", "RewardTrainer", "RewardConfig", "GRPOTrainer", "GRPOConfig",
	"RLOOTrainer", "RLOOConfig", "GKDTrainer", "GKDConfig", "DistillationTrainer", "DistillationConfig"}

// readPython finds the calls of a notebook or script.
func readPython(ext string, data []byte, program *Program) (*Input, error) {
	if program != nil && !program.python {
		return nil, fmt.Errorf("%s has no configuration in Python", program.Title)
	}
	src := string(data)
	if ext == ".ipynb" {
		var err error
		if src, err = notebook(data); err != nil {
			return nil, err
		}
	}
	found, err := parsePython(src)
	if err != nil {
		return nil, err
	}
	in, other := &Input{Program: Find("unsloth"), calls: map[string]bool{},
		renders: strings.Contains(src, "apply_chat_template")}, ""
	for _, c := range found {
		in.calls[c.name] = true
		if madeRows[c.name] && !in.made {
			in.made, in.maker = true, c.name
		}
		if otherTrainers.MatchString(c.name) {
			other = c.name
		}
		place := 0
		for _, a := range c.args {
			if a.Key == "" {
				if names := calls[c.name]; place < len(names) {
					a.Key = names[place]
				}
				place++
			}
			if a.Key == "" || a.Key == "-" || c.name == "train_test_split" && a.Key != "test_size" {
				continue
			}
			in.entries = append(in.entries, entry{Pair: a, shown: c.name + "(" + shorten(a.Key) + ")"})
		}
	}
	if other != "" && !in.trainsRows() && !in.callsAny(slices.Collect(maps.Keys(preferenceTrainers))) {
		return nil, fmt.Errorf(
			"%s is another kind of training; a run here trains on rows of text (SFTTrainer), preferences (DPOTrainer, "+
				"CPOTrainer, ORPOTrainer, KTOTrainer, RewardTrainer), rewards (GRPOTrainer, RLOOTrainer) or a teacher "+
				"(GKDTrainer), so nothing is translated", other)
	}
	in.dropPreferences()
	if in.calls["FastVisionModel.from_pretrained"] {
		return nil, errors.New(
			"it trains a model on images (FastVisionModel); a run here trains a causal language model " +
				"on rows of text, so nothing is translated")
	}
	if !in.calls["FastLanguageModel.from_pretrained"] && !in.calls["FastModel.from_pretrained"] {
		in.Program = Find("trl")
	}
	if program != nil {
		in.Program = program
	}
	if !slices.ContainsFunc(trainingCalls, func(name string) bool { return in.calls[name] }) {
		return nil, fmt.Errorf("it trains nothing that is known: there is no call of %s",
			strings.Join(trainingCalls, ", "))
	}
	return in, nil
}

// detect finds the program of a configuration by its keys.
func detect(m Map) (*Program, error) {
	has := func(keys ...string) bool {
		return slices.ContainsFunc(keys,
			func(k string) bool { return slices.ContainsFunc(m, func(p Pair) bool { return p.Key == k }) })
	}
	inner := func(section, key string) bool { t, _ := m.Get(section).(Map); return t.Get(key) != nil }
	switch {
	case has("peft_type"):
		return Find("peft"), nil
	case has("model") && has("rlhf_type", "train_type", "tuner_type", "split_dataset_ratio", "quant_bits"):
		return Find("ms-swift"), nil
	case inner("model", "_component_"), inner("tokenizer", "_component_"), inner("optimizer", "_component_"):
		return Find("torchtune"), nil
	case !has("model_name_or_path") && has("peft_config", "train_dataset", "dist_config", "kernel_config") &&
		has("model"):
		return Find("llamafactory-v1"), nil
	case has("model_name_or_path") && has("use_peft", "dataset_name", "dataset_mixer", "dataset_mixture",
		"dataset_train_split") && !has("finetuning_type", "stage", "template", "cutoff_len"):
		return nil, errors.New("it is a file for TRL's own commands (trl sft --config), which is not translated: " +
			"scripts of TRL are")
	case has("model_name_or_path", "finetuning_type", "cutoff_len", "lora_rank"):
		return Find("llamafactory"), nil
	case inner("lora", "r"), inner("dataset", "path"), inner("training", "learning_rate"), inner("training", "epochs"):
		return nil, errors.New("it is a configuration of this program already: trainer validate checks it")
	case has("base_model") || has("micro_batch_size", "sequence_len", "datasets"):
		return Find("axolotl"), nil
	case has("per_device_train_batch_size", "num_train_epochs", "lr_scheduler_type"):
		return Find("transformers"), nil
	}
	return nil, fmt.Errorf("no program is known by its keys (%s); name it with --from: %s", firstKeys(m),
		strings.Join(Names(), ", "))
}

func firstKeys(m Map) string {
	var names []string
	for _, p := range m[:min(len(m), 5)] {
		names = append(names, shorten(p.Key))
	}
	if len(m) > 5 {
		names = append(names, "...")
	}
	return strings.Join(names, ", ")
}
