package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every foreign name leads to one of our keys, or says why there is none.
func TestForeignNames(t *testing.T) {
	listed := 0
	for _, names := range sameKeys {
		listed += len(strings.Fields(names))
	}
	for _, group := range noCounterpart {
		listed += len(strings.Fields(group.names))
	}
	if listed += len(otherValues); listed != len(foreign) {
		t.Errorf("%d names listed, %d different ones", listed, len(foreign))
	}
	for name, c := range foreign {
		if k, rest := schema.find(c.key); c.key != "" && (rest != "" || k.path != c.key) {
			t.Errorf("%s leads to %s, which is no key", name, c.key)
		}
		if c.key == "" && c.say == "" {
			t.Errorf("%s: nothing is said", name)
		}
		if schema.child(name) != nil {
			t.Errorf("%s is a key of ours", name)
		}
	}
	for name, want := range map[string]string{
		"load_in_4bit": "is not a key here: write quantization.bits: 4, or adapter: qlora", "sequence_len": "is dataset.max_length here",
		"flash_attention": "has no counterpart here: the fused kernels that fit the device are always used",
		"wandb_project":   "has no counterpart here: metrics are written to metrics.jsonl in output_dir",
		"template": "has no counterpart here: chat templates are not applied; write the conversation into the fields of a format, " +
			"such as prompt and completion of dataset.format: completion",
		"bias":             "has no counterpart here: biases stay as they are, only LoRA's matrices are trained",
		"Quantization-Bit": "is quantization.bits here",
	} {
		for _, section := range []*key{schema, schema.child("lora")} {
			if got := unknownKey(section, name).text; got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
}

// A guess keeps most of the letters: short names of other sections are near to anything.
func TestGuesses(t *testing.T) {
	for _, c := range []struct{ section, name, want string }{
		{"lora", "bats", ""}, {"lora", "bis", ""}, {"lora", "x", ""}, {"lora", "rr", "lora.r"}, {"lora", "alpa", "lora.alpha"},
		{"", "lerning_rate", "training.learning_rate"}, {"lora", "batch_sizes", "training.batch_size"}, {"", "sead", "seed"},
	} {
		section, _ := schema.find(c.section)
		if got := unknownKey(section, c.name).meant; got != c.want {
			t.Errorf("%s.%s: the guess is %q, want %q", c.section, c.name, got, c.want)
		}
	}
	want := "run.yaml:5:3: lora.xylophone: unknown key; the keys of lora are " + strings.Join(schema.child("lora").names(), ", ") +
		"\nrun.yaml:6:3: lora.zither: unknown key"
	if got := problemsOf(least+"lora:\n  xylophone: 1\n  zither: 2\n", nil, nil); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A renamed key keeps working in files, variables and --set, and a note says its new name.
func TestRenamedKeys(t *testing.T) {
	for old, now := range renamed {
		oldKey, rest := schema.find(old)
		if _, restNow := schema.find(now); rest != "" && restNow != "" {
			t.Errorf("neither %s nor %s is a key", old, now)
		}
		if rest == "" && oldKey.path == old && newName(old) != nil {
			t.Errorf("%s is a key still, and %s too", old, now)
		}
		if old[:strings.LastIndexByte(old, '.')+1] != now[:strings.LastIndexByte(now, '.')+1] {
			t.Errorf("%s and %s are not in one section", old, now)
		}
	}
	renamed["training.stride"], renamed["samen"] = "training.logging_steps", "seed"
	defer delete(renamed, "training.stride")
	defer delete(renamed, "samen")
	for _, c := range []struct {
		name, text    string
		environ, sets []string
		notes         []string
	}{
		{"file", "training: {stride: 7}\nsamen: 3\n", nil, nil, []string{
			"run.yaml:4:12: training.stride is training.logging_steps now; the old name still works",
			"run.yaml:5:1: samen is seed now; the old name still works"}},
		{"environment", "seed: 3\n", []string{"TRAINER_TRAINING_STRIDE=7"}, nil, []string{
			"TRAINER_TRAINING_STRIDE: training.stride is training.logging_steps now; the old name still works"}},
		{"flag over file", "training: {logging_steps: 2}\nseed: 3\n", nil, []string{"training.stride=7"}, []string{
			"--set training.stride=7: training.stride is training.logging_steps now; the old name still works"}},
		{"section by flag", "seed: 3\n", nil, []string{"training={stride: 7}"}, []string{
			"--set 'training={stride: 7}': training.stride is training.logging_steps now; the old name still works"}},
	} {
		got, problems := mergeConfig("run.yaml", []byte(least+c.text), c.environ, c.sets)
		if len(problems) > 0 || got.Spec.Training.LoggingSteps != 7 || got.Spec.Seed != 3 || !slices.Equal(got.Notes, c.notes) {
			t.Errorf("%s: %v, logging_steps %d, seed %d, notes %q", c.name, problems, got.Spec.Training.LoggingSteps, got.Spec.Seed, got.Notes)
		}
	}
	want := "run.yaml:4:12: training.stride: is the old name of training.logging_steps, which line 4 gives too; remove one"
	if got := problemsOf(least+"training: {stride: 7, logging_steps: 2}\n", nil, nil); got != want {
		t.Errorf("both: %q, want %q", got, want)
	}
	if got, want := problemsOf(least+"training: {stride: x}\n", nil, nil), `run.yaml:4:20: training.logging_steps: expected a whole number, got the text "x"`; got != want {
		t.Errorf("bad value: %q, want %q", got, want)
	}
}

// A key that did nothing is passed over where it is empty, as old effective configurations have it.
func TestRemovedKeys(t *testing.T) {
	removed["dataset.flavour"] = "there are no flavours"
	defer delete(removed, "dataset.flavour")
	text := "base_model: m\noutput_dir: out\ndataset:\n  path: d.jsonl\n  flavour: "
	got, problems := mergeConfig("run.yaml", []byte(text+"\"\"\n"), nil, nil)
	if want := []string{"run.yaml:5:3: dataset.flavour is passed over: there are no flavours; remove it"}; len(problems) > 0 || !slices.Equal(got.Notes, want) {
		t.Errorf("%v, notes %q, want %q", problems, got.Notes, want)
	}
	if got := problemsOf(text+"salt\n", nil, nil); !strings.HasPrefix(got, "run.yaml:5:3: dataset.flavour: unknown key") {
		t.Errorf("with a value: %q", got)
	}
}

var (
	namedKey   = regexp.MustCompile(`\b(?:lora|quantization|dataset|training|expect)\.[a-z][a-z0-9_]*`)
	keyAndText = regexp.MustCompile(`([a-z_]+(?:\.[a-z_0-9]+)?): ([a-zA-Z0-9_-]+)`)
	namedFlag  = regexp.MustCompile(`(?:^|[ (])--([a-z][a-z-]*)`)
	sources    = regexp.MustCompile(`^dataset\.(json|jsonl)$`) // file names, no keys
)

// TestMessagesNameWhatExists: every key and every flag that some text of the program names can be given.
func TestMessagesNameWhatExists(t *testing.T) {
	root := newRoot(&console{})
	isFlag := func(name string) bool {
		there := name == "help"
		eachCommand(root, func(cmd *cobra.Command) { there = there || cmd.Flags().Lookup(name) != nil })
		return there
	}
	count, values := 0, 0
	check := func(where, text string) {
		for _, name := range namedKey.FindAllString(text, -1) {
			if k, rest := schema.find(name); (rest != "" || k.path != name) && newName(name) == nil && renamed[name] == "" && !sources.MatchString(name) && !isOld(name) {
				t.Errorf("%s names the key %s, which is none: %q", where, name, text)
			}
			count++
		}
		for _, m := range namedFlag.FindAllStringSubmatch(text, -1) {
			if !isFlag(m[1]) {
				t.Errorf("%s names the flag --%s, which no command has: %q", where, m[1], text)
			}
			count++
		}
	}
	for name, c := range foreign {
		check(name, c.say)
		for _, m := range keyAndText.FindAllStringSubmatch(c.say, -1) {
			if k, rest := schema.find(m[1]); rest != "" || k == schema {
				continue // a sentence with a colon
			}
			values++
			if said := problemsOf(least, nil, []string{"adapter=qlora", m[1] + "=" + m[2]}); said != "" {
				t.Errorf("%s: %s can't be written: %s", name, m[0], said)
			}
		}
	}
	for _, folder := range []string{"cmd/trainer", "train", "dataset", "adapter", "quant", "model", "graph"} {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if text, err := strconv.Unquote(lit.Value); err == nil {
						check(path, text)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if values < 25 {
		t.Errorf("only %d values seen", values)
	}
	if count < 150 {
		t.Errorf("only %d keys and flags seen", count)
	}
}

func isOld(path string) bool {
	_, gone := removed[path]
	for _, now := range renamed {
		gone = gone || now == path // until the configuration has it
	}
	return gone
}

func eachCommand(cmd *cobra.Command, see func(*cobra.Command)) {
	see(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, see)
	}
}
