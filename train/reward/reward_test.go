package reward

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// answers are answers to one row.
func answers(columns string, completions ...string) (all []Answer) {
	for _, c := range completions {
		all = append(all, Answer{Prompt: "p", Completion: c, Columns: json.RawMessage(columns)})
	}
	return all
}

// judged opens rewards and judges answers.
func judged(t *testing.T, configs []Config, of []Answer) ([][]float64, *Rewards, error) {
	t.Helper()
	r, err := Open(configs, 100, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	numbers, err := r.Judge(t.Context(), of)
	return numbers, r, err
}

// pointSchema is a JSON Schema of an object with a number.
const pointSchema = `{"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}`

// TestBuiltIn checks every judge that needs no program.
func TestBuiltIn(t *testing.T) {
	for _, c := range []struct {
		config  Config
		columns string
		answer  string
		want    float64
	}{
		{Config{Type: "regex", Pattern: "^a+$"}, "{}", "aaa", 1},
		{Config{Type: "regex", Pattern: "^a+$"}, "{}", "aab", 0},
		{Config{Type: "count", Pattern: "e"}, "{}", "eleven", 3},
		{Config{Type: "exact_match"}, `{"answer": "Paris"}`, " Paris\n", 1},
		{Config{Type: "exact_match", Column: "n"}, `{"n": 42}`, "42", 1},
		{Config{Type: "length", Target: 4}, "{}", "äöü", -0.25},
		{Config{Type: "tags", Tags: []string{"think", "answer"}}, "{}", "<think>a</think>\n<answer>b</answer>", 1},
		{Config{Type: "tags", Tags: []string{"think", "answer"}}, "{}", "<think>a</think> so <answer>b</answer>", 0},
		{Config{Type: "tags", Tags: []string{"think"}}, "{}", "<think>a<think>b</think></think>", 0},
		{Config{Type: "number"}, `{"answer": "so it is\n#### 1,234"}`, "the answer is $1234.", 1},
		{Config{Type: "number"}, `{"answer": "#### 18"}`, "18 eggs, no 19", 0},
		{Config{Type: "number"}, `{"answer": "\\frac{1}{3}"}`, `so \boxed{\dfrac{2}{6}}`, 1},
		{Config{Type: "number"}, `{"answer": "x"}`, "5", math.NaN()},
		{Config{Type: "math"}, `{"answer": "\\frac{x}{2}"}`, `so \boxed{0.5x}`, 1},
		{Config{Type: "math", Column: "solution"}, `{"solution": "thus $\\boxed{(1,2)}$"}`, "The answer is $(2,1)$", 0},
		{Config{Type: "choice"}, `{"answer": 1}`, "The answer is (B).", 1},
		{Config{Type: "choice"}, `{"answer": "C"}`, "A", 0},
		{Config{Type: "json_schema", Schema: pointSchema}, "{}", "```json\n{\n      \"x\": 1\n}\n```", 1},
		{Config{Type: "json_schema", Schema: pointSchema}, "{}", `{"x": "1"}`, 0},
		{Config{Type: "json_schema", Schema: pointSchema}, "{}", `Sure: {"x": 1}`, 0},
		{Config{Type: "json_schema", Schema: pointSchema}, "{}", `{"x": 1}}`, 0},
	} {
		c.config.Workers, c.config.Timeout = 1, 1
		got, _, err := judged(t, []Config{c.config}, answers(c.columns, c.answer))
		if err != nil || got[0][0] != c.want && !(math.IsNaN(c.want) && math.IsNaN(got[0][0])) {
			t.Errorf("%s of %q with %s: %v (%v), want %v", c.config.Type, c.answer, c.columns, got, err, c.want)
		}
	}
	_, _, err := judged(t, []Config{{Type: "exact_match"}}, answers(`{"q": 1}`, "a"))
	if want := `rewards[0] (exact_match): column "answer" is missing in a row: name another by column`; err == nil ||
		err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestNumber checks numbers as answers write them.
func TestNumber(t *testing.T) {
	for text, want := range map[string]string{
		"1": "1", "-3.50": "-7/2", "$1,234.5": "2469/2", "about 3/4 of it": "3/4", `\boxed{7} or 8`: "7",
		`\boxed{\frac{3}{4}}`: "3/4", "50%": "50", "a #### 12\nb": "12", "2 and then 10.": "10", ".5": "1/2", "1/0": "", "none": "",
		`\boxed{1`: "1", "−4": "-4", `10{,}000`: "10000",
	} {
		got := ""
		if x, ok := Number(text); ok {
			got = x.RatString()
		}
		if got != want {
			t.Errorf("the number of %q is %q, want %q", text, got, want)
		}
	}
}

// FuzzNumber checks that no text makes Number panic or take long.
func FuzzNumber(f *testing.F) {
	for _, s := range []string{`\boxed{{{`, "1,2,3/0", "#### -", strings.Repeat("9", 2000), `\frac{1}{2`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if x, ok := Number(text); ok && x == nil {
			t.Error("a number that is none")
		}
	})
}

// FuzzParse checks that any line of a program gives a number, none, or an error.
func FuzzParse(f *testing.F) {
	f.Add("1")
	f.Add("null")
	f.Add("[1]")
	f.Fuzz(func(t *testing.T, line string) {
		if x, err := parse(line); err == nil && math.IsInf(x, 0) {
			t.Error("a number that is infinite")
		}
	})
}

// script writes a program of the shell.
func script(t *testing.T, text string) []string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	path := filepath.Join(t.TempDir(), "judge.sh")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"sh", path}
}

// TestCommand checks a program that answers, one that cannot judge, and that none sees the trainer's secrets.
func TestCommand(t *testing.T) {
	t.Setenv("HF_TOKEN", "secret")
	command := script(t, `while read line; do case "$line" in *skip*) echo null;; *) echo "${#HF_TOKEN}.5";; esac; done`)
	c := Config{Type: "command", Command: command, Workers: 2, Timeout: 10, OnError: "error", MemoryMiB: 4096}
	got, _, err := judged(t, []Config{c}, answers("{}", "a", "skip", "b"))
	if err != nil || fmt.Sprint(got) != "[[0.5] [NaN] [0.5]]" {
		t.Errorf("%v (%v)", got, err)
	}
}

// TestCommandFails checks programs that hang, write no number, end, or are missing: the error, or a counted zero.
func TestCommandFails(t *testing.T) {
	for _, c := range []struct{ script, want string }{
		{"while read line; do sleep 60; done", "no number came within 0.3 s, and the program was killed"},
		{"while read line; do echo good; done", `it wrote "good", want a number or null`},
		{"echo broken >&2; exit 3", `the program ended: "broken"`},
	} {
		began := time.Now()
		config := Config{Type: "command", Command: script(t, c.script), Workers: 1, Timeout: 0.3, OnError: "error"}
		if strings.Contains(c.script, "exit") {
			config.Timeout = 10
		}
		_, _, err := judged(t, []Config{config}, answers("{}", "a"))
		want := `rewards[0] (command): sh on the answer "a": ` + c.want + "; on_error: zero would count it and go on"
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		config.OnError = "zero"
		got, r, err := judged(t, []Config{config}, answers("{}", "a", "b"))
		if err != nil || fmt.Sprint(got) != "[[0] [0]]" || r.Zeros() != 2 {
			t.Errorf("%v, %d zeros (%v)", got, r.Zeros(), err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
	}
	config := Config{Type: "command", Command: []string{"/nowhere/judge"}, Workers: 1, Timeout: 1, OnError: "error"}
	if _, _, err := judged(t, []Config{config}, answers("{}", "a")); err == nil ||
		!strings.Contains(err.Error(), "start the program: ") {
		t.Errorf("a program that is missing: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := Open([]Config{{Type: "command", Command: script(t, "cat"), Workers: 1, Timeout: 1}}, 100, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Judge(ctx, answers("{}", "a")); err == nil {
		t.Error("a cancelled judgement gives numbers")
	}
}

// TestValidate checks the messages about values of rewards.
func TestValidate(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Type: "regex"}, `pattern: "" is no regular expression that matches anything in particular: <nil>`},
		{Config{Type: "count", Pattern: "("},
			"pattern: \"(\" is no regular expression that matches anything in particular: error parsing regexp: " +
				"missing closing ): `(`"},
		{Config{Type: "length"}, "target: is 0: write how many characters an answer should have"},
		{Config{Type: "tags"}, "tags: are missing: name them, such as [think, answer]"},
		{Config{Type: "json_schema", Schema: `{"type": "string"}`},
			`schema: "{\"type\": \"string\"}": schema: want type object or array: the end of other values cannot be recognised`},
		{Config{Type: "command"}, "command: is missing: name a program, such as [python3, reward.py]"},
		{Config{Type: "length", Target: 1, Name: "a/b"},
			`name: "a/b" is part of the name of a metric: leave out blanks and /`},
	} {
		if got := c.config.Validate(); len(got) != 1 || got[0].Error() != c.want {
			t.Errorf("problems %v, want %s", got, c.want)
		}
	}
	two := []Config{{Type: "count", Pattern: "a"}, {Type: "count", Pattern: "b"}}
	if _, err := Open(two, 100, nil); err == nil ||
		err.Error() != `rewards[1].name: "count" names another reward too: give each a name of its own` {
		t.Errorf("two of one name: %v", err)
	}
}

// TestSoftOverlong checks the punishment of long answers with the values of DAPO's formula.
func TestSoftOverlong(t *testing.T) {
	r, err := Open([]Config{{Type: "soft_overlong", SoftPunishCache: 20}}, 100, nil)
	if err != nil {
		t.Fatal(err)
	}
	for tokens, want := range map[int]float64{0: 0, 80: 0, 81: -0.05, 90: -0.5, 99: -0.95, 100: -1} {
		got, err := r.Judge(t.Context(), []Answer{{Tokens: tokens}})
		if err != nil || math.Abs(got[0][0]-want) > 1e-12 {
			t.Errorf("%d tokens: %v, %v; want %v", tokens, got, err, want)
		}
	}
	if _, err := Open([]Config{{Type: "soft_overlong"}}, 100, nil); err == nil {
		t.Error("no soft_punish_cache, and no error")
	}
}
