package importer

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Every name of another program stands in the table once.
func TestKeysAreListedOnce(t *testing.T) {
	listed := len(otherValues)
	for _, names := range sameKeys {
		listed += len(strings.Fields(names))
	}
	for _, group := range noCounterpart {
		listed += len(strings.Fields(group.names))
	}
	if n := len(Keys()); listed != n {
		t.Errorf("%d names listed, %d different ones", listed, n)
	}
}

func TestPythonLiterals(t *testing.T) {
	src := `
a = 1_000
b = ["x", 'y' "z", """long
text"""]  # a comment with ) in it
c = a + 1
f(
LoraConfig(r = -a, lora_alpha = 2e-4, target_modules = b, bias = c, x = {"k": (1, 2), "m": None}, y = g(1, h=[2]), z = True if a else False, **kw)
)
a = other()
LoraConfig(r = a, s = r"\n", u = "\u00e9\t\x41\'")
`
	calls, err := parsePython(src)
	if err != nil || len(calls) != 2 {
		t.Fatalf("%d calls: %v", len(calls), err)
	}
	want := Map{{"r", int64(-1000), 7}, {"lora_alpha", 2e-4, 7}, {"target_modules", []any{"x", "yz", "long\ntext"}, 7}, {"bias", Code("c"), 7},
		{"x", Map{{"k", []any{int64(1), int64(2)}, 7}, {"m", nil, 7}}, 7}, {"y", Code("g(1, h=[2])"), 7}, {"z", Code("True if a else False"), 7}, {"", Code("**kw"), 7}}
	if !reflect.DeepEqual(calls[0].args, want) {
		t.Errorf("%v\nwant\n%v", calls[0].args, want)
	}
	want = Map{{"r", Code("a"), 10}, {"s", `\n`, 10}, {"u", "\u00e9\tA'", 10}}
	if !reflect.DeepEqual(calls[1].args, want) {
		t.Errorf("%v\nwant\n%v", calls[1].args, want)
	}
}

// Programs that are long or nested are read in bounded time.
func TestPythonRunsNotAway(t *testing.T) {
	for _, src := range []string{
		strings.Repeat("LoraConfig(", 20000), "LoraConfig(x=" + strings.Repeat("[", 100000), "x = " + strings.Repeat("-", 100000) + "1",
		strings.Repeat("a = (", 50000), "LoraConfig(" + strings.Repeat("a=1,", 20000) + ")",
	} {
		if _, err := parsePython(src); err != nil && !errors.Is(err, errMany) {
			t.Errorf("%.20s: %v", src, err)
		}
	}
}

func FuzzPython(f *testing.F) {
	f.Add("x = 1\nLoraConfig(r = x, y = [1, (2,), {'a': -1}], **z)")
	f.Add("FastLanguageModel.from_pretrained('a' f'b', r\"c\", 1e-4)")
	f.Fuzz(func(_ *testing.T, src string) { _, _ = parsePython(src) })
}

// TestObjectivesOfNames checks that preference training whose objective this program lacks is refused by its name, and
// translated as soon as it has the objective's section.
func TestObjectivesOfNames(t *testing.T) {
	for name, c := range map[string]struct{ text, refused, section string }{
		"k.py": {"KTOTrainer('m', args=KTOConfig('o', desirable_weight=1.5), peft_config=LoraConfig(r=8))\n",
			"KTOTrainer",
			"kto.desirable_weight"},
		"k.yml": {"base_model: m\nrl: kto\nkto_desirable_weight: 1.5\ndatasets: [{path: d, type: " +
			"chat_template.default}]\n",
			"rl: kto", "kto.desirable_weight"},
		"k.yaml": {"model_name_or_path: m\nstage: kto\nkto_chosen_weight: 1.5\ndataset: d\n", "stage: kto",
			"kto.desirable_weight"},
		"r.yaml": {"model_name_or_path: m\nstage: rm\ndataset: d\n", "stage: rm", ""},
	} {
		in, err := Read(name, []byte(c.text), "")
		if err != nil {
			t.Fatal(err)
		}
		translated := func(sections ...string) Result {
			return Translate(in, Options{Own: func(string) string { return "" }, Kind: func(path string) Kind {
				section, _, _ := strings.Cut(path, ".")
				if slices.Contains(sections, section) {
					return Number
				}
				return map[string]Kind{"training": TextKind}[section]
			}})
		}
		if r := translated(); r.Refused != c.refused {
			t.Errorf("%s: refused for %q, want %q", name, r.Refused, c.refused)
		}
		if c.section == "" {
			continue
		}
		if r := translated("kto"); r.Refused != "" || !slices.ContainsFunc(r.Settings, func(s Setting) bool {
			return s.Path == c.section && s.Value == 1.5
		}) {
			t.Errorf("%s: refused for %q, settings %v", name, r.Refused, r.Settings)
		}
	}
}

// FuzzShell checks that no script of the shell makes the reader panic, and that words keep to the script's lines.
func FuzzShell(f *testing.F) {
	f.Add("a='x y'\nswift sft --model \"$a\" \\\n --k=v --list 1 2 --on # no\n")
	f.Add("swift rlhf --model ${m} 'no end")
	f.Fuzz(func(t *testing.T, src string) {
		m, _, err := readShell(src)
		if err != nil {
			return
		}
		for _, p := range m {
			if p.Key == "" || p.Line < 1 || p.Line > 1+strings.Count(src, "\n") {
				t.Errorf("%+v", p)
			}
		}
	})
}
