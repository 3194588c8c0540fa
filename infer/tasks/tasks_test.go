package tasks

import (
	"context"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

func generator(t testing.TB, dir string) *infer.Generator {
	t.Helper()
	data := func(name string) (fs.FS, error) { return configs.Data(name) }
	g, err := infer.NewGenerator(context.Background(), session.Options{Model: dir, Device: "cpu"}, "",
		session.Env{Data: data})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

func dataFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func task(t testing.TB, text string) *Task {
	t.Helper()
	made, err := Parse("t.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func metric(r Result, name string) Metric {
	for _, m := range r.Metrics {
		if m.Name == name {
			return m
		}
	}
	return Metric{Value: math.NaN()}
}

// choiceGolden is what scripts/choices_reference.py writes.
type choiceGolden struct {
	LogLikelihoods [][]float64 `json:"log_likelihoods"`
	Acc            float64     `json:"acc"`
	Norm           float64     `json:"acc_norm"`
	Bytes          float64     `json:"acc_bytes"`
}

func compareChoices(t *testing.T, dir, path string) {
	t.Helper()
	var want choiceGolden
	if err := json.Unmarshal(golden.ReadFile(t, path), &want); err != nil {
		t.Fatal(err)
	}
	choices := task(t, "{kind: multiple_choice, data: testdata/choices.jsonl, chat: never, prompt: '{{ prompt }}', "+
		"choices_field: choices, gold_field: gold}")
	r, err := Run(context.Background(), generator(t, dir), choices, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for i, a := range r.Answers {
		for k, ll := range a.Likelihoods {
			worst = max(worst, math.Abs(ll-want.LogLikelihoods[i][k]))
		}
	}
	t.Logf("largest difference of a log-likelihood %.2e; %+v", worst, r.Metrics)
	if worst > 1e-3 {
		t.Errorf("a log-likelihood differs by %v", worst)
	}
	for name, w := range map[string]float64{"acc": want.Acc, "acc_norm": want.Norm, "acc_bytes": want.Bytes} {
		if got := metric(r, name).Value; math.Abs(got-w) > 1e-12 {
			t.Errorf("%s %v, lm-eval's formula gives %v", name, got, w)
		}
	}
}

// TestChoicesAsTransformers: likelihoods of choices are transformers', and with them lm-eval's three accuracies.
func TestChoicesAsTransformers(t *testing.T) {
	compareChoices(t, golden.StoriesDir(t), filepath.Join("testdata", "choices.json"))
}

// TestSmolLM2ChoicesAsTransformers asks the Python of TRAINER_PYTHON, which has torch and transformers.
func TestSmolLM2ChoicesAsTransformers(t *testing.T) {
	dir, python := golden.SmolLM2(t), os.Getenv("TRAINER_PYTHON")
	if python == "" {
		t.Skip("TRAINER_PYTHON is not set: it names a Python with torch and transformers")
	}
	if exec.Command(python, "-c", "import torch, transformers").Run() != nil {
		t.Skipf("%s has no torch and transformers", python)
	}
	out := filepath.Join(t.TempDir(), "choices.json")
	script := filepath.Join(golden.Root(t), "scripts", "choices_reference.py")
	if text, err := exec.Command(python, script, dir, filepath.Join("testdata", "choices.jsonl"), out).
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	compareChoices(t, dir, out)
}

// TestGeneratedAnswers: the model's own greedy text, made right or wrong, is scored so by each kind.
func TestGeneratedAnswers(t *testing.T) {
	g := generator(t, golden.StoriesDir(t))
	said, err := g.Continue(context.Background(), g.Text("Once upon a time"), infer.GenerateOptions{MaxTokens: 12}, nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := strings.TrimSpace(said.Text)
	word := strings.Fields(whole)[1]
	line := func(expected string) string {
		raw, _ := json.Marshal(map[string]string{"q": "Once upon a time", "a": expected})
		return string(raw) + "\n"
	}
	for kind, right := range map[string]string{"exact_match": whole, "contains": word, "regex": word} {
		path := dataFile(t, "d.jsonl", line(right)+line("something else 7"))
		text := "{kind: " + kind + ", data: '" + path + "', prompt: '{{q}}', answer: '{{ a }}', max_tokens: 12"
		if kind == "regex" {
			text += `, regex: '^\S+ (\S+)'`
		}
		r, err := Run(context.Background(), g, task(t, text+"}"), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		m := metric(r, kind)
		if m.Value != 0.5 || m.StdErr != 0.5 || r.Answers[0].Scores[kind] != 1 || r.Cut != 2 {
			t.Errorf("%s: %+v, cut %d, extracted %q", kind, r.Metrics, r.Cut, r.Answers[0].Extracted)
		}
	}
}

func TestFinalNumber(t *testing.T) {
	for text, want := range map[string]string{
		"#### 18": "18", "so 3 + 4 = 7.\n#### 1,234": "1234", "It costs $5.50": "5.5", "no": "", "#### none, 9": "9",
		"a 12 and 3.": "3", "-07": "-7", "0.50": "0.5", ".5": "0.5", "-0": "0", "#### -$3": "-3", "18.00": "18",
		"100": "100", "000": "0",
	} {
		if got, _ := finalNumber(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	s := gsm8k.Score(nil, "x\n#### 18", "the answer is 18.")
	if s.Metrics["exact_match"] != 1 || s.Metrics["strict_match"] != 0 {
		t.Errorf("without ####: %v", s)
	}
	if s = gsm8k.Score(nil, "x\n#### 18", "9\n#### 18\nand 20"); s.Metrics["strict_match"] != 1 {
		t.Errorf("with ####: %v", s)
	}
}

// TestExamples: the same with every limit, never the question itself, and as the text has them.
func TestExamples(t *testing.T) {
	var lines strings.Builder
	for _, w := range []string{"a", "b", "c", "d", "e"} {
		lines.WriteString(`{"q":"` + w + `","a":"` + strings.ToUpper(w) + `"}` + "\n")
	}
	g := generator(t, golden.StoriesDir(t))
	text := "{kind: exact_match, data: '" + dataFile(t, "d.jsonl", lines.String()) +
		"', prompt: 'Q{{q}}:', answer: '{{a}}', few_shot: 2, max_tokens: 1}"
	all, err := Run(context.Background(), g, task(t, text), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	limited := task(t, text)
	limited.Limit = 2
	few, err := Run(context.Background(), g, limited, "", nil)
	if err != nil || len(few.Answers) != 2 {
		t.Fatal(err, few.Answers)
	}
	for i, a := range all.Answers {
		if i < 2 && a.Prompt != few.Answers[i].Prompt {
			t.Errorf("question %d: %q, with a limit %q", i, a.Prompt, few.Answers[i].Prompt)
		}
		own := "Q" + string(rune('a'+i)) + ":"
		if strings.Count(a.Prompt, own) != 1 || !strings.HasSuffix(a.Prompt, "\n\n"+own) ||
			strings.Count(a.Prompt, "Q") != 3 {
			t.Errorf("question %d: %q", i, a.Prompt)
		}
	}
}

func TestCompare(t *testing.T) {
	result := func(values ...float64) Result {
		var r Result
		for _, v := range values {
			r.Answers = append(r.Answers, Answer{Scores: map[string]float64{"acc": v}})
		}
		r.Metrics = means(r.Answers)
		return r
	}
	changes, err := Compare(result(0, 0, 1, 1), result(1, 1, 1, 0))
	if err != nil || len(changes) != 1 {
		t.Fatal(err, changes)
	}
	c := changes[0]
	if c.Better != 2 || c.Worse != 1 || c.Change != 0.25 || c.Before != 0.5 || c.After != 0.75 {
		t.Errorf("%+v", c)
	}
	golden.Near(t, "paired standard error", c.StdErr, math.Sqrt((2*0.75*0.75+0.25*0.25+1.25*1.25)/3/4), 1e-12)
	if _, err := Compare(result(1), result(1, 0)); err == nil {
		t.Error("runs over different questions are compared")
	}
}

// TestBroken: what is wrong with a task, and the exact words that say so. D is the data's path.
func TestBroken(t *testing.T) {
	const choice = "{kind: multiple_choice, data: D, prompt: '{{q}}', choices_field: c, gold_field: g}"
	const exact = "kind: exact_match\ndata: D\nprompt: '{{ q }}'\nanswer: '{{ a }}'\n"
	const row = `{"q":"x","a":"y","c":["1","2"],"g":0}` + "\n"
	g := generator(t, golden.StoriesDir(t))
	for _, c := range []struct{ name, task, data, want string }{
		{"empty file", "", row, "task t.yaml: the file is empty"},
		{"unknown key", exact + "promt: x\n", row,
			"task t.yaml: unmarshal errors:\n  line 5: field promt not found: no task has this key"},
		{"unknown kind", "{kind: bleu, data: D, prompt: x}", row,
			`task t.yaml: kind: "bleu" is not one of contains, exact_match, gsm8k, multiple_choice, regex`},
		{"no data, no answer", "{kind: exact_match, prompt: x}", row, "task t.yaml: data is missing: name a file, a " +
			"hub data set or embedded:NAME\nanswer is missing: write the right answer, such as \"{{ answer }}\""},
		{"a filter", "{kind: exact_match, data: D, prompt: '{{ q | upper }}', answer: x}", row,
			`task t.yaml: "{{ q | upper }}": only {{ field }} is filled in, without filters and statements`},
		{"bad regex", "{kind: regex, data: D, prompt: x, answer: x, regex: '(a'}", row,
			"task t.yaml: regex: error parsing regexp: missing closing ): `(a` (expressions are RE2's, without " +
				"look-around and back references)"},
		{"look-ahead", "{kind: regex, data: D, prompt: x, answer: x, regex: '(?=a)'}", row,
			"task t.yaml: regex: error parsing regexp: invalid or unsupported Perl syntax: `(?=` (expressions are " +
				"RE2's, without look-around and back references)"},
		{"one choice", "{kind: multiple_choice, data: D, prompt: x, choices: [a], gold_field: g}", row,
			"task t.yaml: choices: there is 1, a choice needs at least 2"},
		{"missing field", exact, row + `{"q":"x"}`, `task t: D:2: the row has no field "a", it has q`},
		{"null", exact, `{"q":null,"a":"y"}`, `task t: D:1: field "q" is null`},
		{"empty data", exact, "", "task t: D: the file holds no row"},
		{"broken row", exact, row + `{"q":`,
			"task t: D:2: the row ends in the middle of its JSON (JSONL needs a whole object on one line)"},
		{"gold out of range", choice, row + `{"q":"x","c":["1","2"],"g":2}`,
			`task t: D:2: field "g" names choice 2, and the question has 2 (indices begin at 0)`},
		{"gold no choice", choice, `{"q":"x","c":["1","2"],"g":"three"}`,
			`task t: D:1: field "g" is "three": want the index, the letter or the text of one of the 2 choices`},
		{"a choice alone", choice, `{"q":"x","c":["1"],"g":0}`,
			"task t: D:1: the question has 1 choices, want 2 to 256"},
		{"choices no list", choice, `{"q":"x","c":"1, 2","g":0}`, `task t: D:1: field "c" is not a list of texts`},
		{"long prompt", exact + "max_tokens: 500\n", row + `{"q":"` + strings.Repeat("a b ", 60) + `","a":"y"}`,
			"task t: D:2: the prompt has 122 tokens and the answer up to 500, together more than the model's 512 " +
				"positions: lower few_shot (0) or max_tokens"},
		{"no template", exact + "chat: always\n", row,
			"task t: chat: always, and neither the model nor the adapter has a chat template"},
		{"few examples", exact + "few_shot: 3\n", row + row,
			"task t: few_shot: 3 examples are asked for, the data has 1 besides the question"},
		{"no number", "{kind: gsm8k, data: D, prompt: x, answer: '{{ a }}'}", row,
			`task t: D:1: the expected answer "y" has no number`},
	} {
		path := dataFile(t, "d.jsonl", c.data)
		made, err := Parse("t.yaml", []byte(strings.ReplaceAll(c.task, "D", path)))
		if err == nil {
			_, err = Run(context.Background(), g, made, "", nil)
		}
		if err == nil {
			t.Errorf("%s: no error", c.name)
		} else if got := strings.ReplaceAll(err.Error(), path, "D"); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	if _, err := Find("mmlu"); err == nil || err.Error() != `there is no task "mmlu": the built-in ones are gsm8k; a `+
		`task of your own is a .yaml or .json file` {
		t.Error(err)
	}
}

// TestBuiltIn: every built-in task can be read.
func TestBuiltIn(t *testing.T) {
	for name := range builtIn {
		if _, err := Find(name); err != nil {
			t.Error(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(builtIn["gsm8k"]))
	f.Add([]byte("{kind: multiple_choice, data: d, prompt: x, choices: [a, b], gold_field: g}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if made, err := Parse("t.yaml", text); err == nil && Kinds[made.Kind].About == "" {
			t.Error("a task without a kind")
		}
	})
}
