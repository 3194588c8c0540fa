package jinja

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/cputime"
)

// Templates made to use up time or memory end with an error soon.
func TestLimits(t *testing.T) {
	nest := func(open, middle, end string, n int) string {
		return strings.Repeat(open, n) + middle + strings.Repeat(end, n)
	}
	for name, c := range map[string]struct{ source, want string }{
		"repeat":          {"{{ 'a' * 10**9 * 100 }}", "builds "},
		"repeat list":     {"{% set x = [0] * 10**9 %}", "builds "},
		"double":          {"{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "builds "},
		"range":           {"{{ range(10**9) }}", "Range too big"},
		"loops":           {"{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(9) %}{% endfor %}{% endfor %}{% endfor %}", "more than 2000000 steps"},
		"indent":          {"{{ ('a\n'*1000) | indent(10**9) }}", "builds "},
		"power":           {"{{ 9 ** (9 ** 9) }}", "an integer has more than"},
		"int digits":      {"{{ (10 ** 5000) | string }}", "Exceeds the limit (4300 digits)"},
		"recursion":       {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "more than 200 deep"},
		"two macros":      {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}", "more than 200 deep"},
		"caller":          {"{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}", "more than 200 deep"},
		"loop":            {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "more than 200 deep"},
		"deep list":       {"{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", "deep in each other"},
		"deep JSON":       {"{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}", "deep in each other"},
		"deep comparison": {"{% set a = namespace(x=[]) %}{% set b = namespace(x=[]) %}{% for i in range(5000) %}{% set a.x = [a.x] %}{% set b.x = [b.x] %}{% endfor %}{{ a.x == b.x }}", "deep in each other"},
		"itself":          {"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "deep in each other"},
		"brackets":        {"{{ " + nest("(", "1", ")", 5000) + " }}", "nests more than"},
		"lists":           {"{{ " + nest("[", "1", "]", 5000) + " }}", "nests more than"},
		"nots":            {"{{ " + strings.Repeat("not ", 5000) + "1 }}", "nests more than"},
		"minuses":         {"{{ " + strings.Repeat("-", 5000) + "1 }}", "nests more than"},
		"ifs":             {nest("{% if 1 %}", "", "{% endif %}", 5000), "nests more than"},
		"fors":            {nest("{% for i in [1] %}", "", "{% endfor %}", 30), "more than 20 loops"},
		"sum":             {"{{ 1" + strings.Repeat(" - 1", 5000) + " }}", "operators in a row"},
		"attributes":      {"{{ a" + strings.Repeat(".a", 5000) + " }}", "operators in a row"},
		"long":            {strings.Repeat("a", MaxSource+1), "more than 1048576"},
		"no text":         {"a\n\xff", "line 2: TemplateSyntaxError: the template is not UTF-8: byte 2 is 0xff"},
		"join":            {"{{ range(99999) | map('string') | list | join('a' * 10**6) }}", "builds "},
		"long texts":      {"{% set s = 'a' * 10**7 %}{% set t = 'a' * 10**7 %}{% for a in range(99999) %}{{ s == t }}{{ s[-9999999] }}{{ s | length }}{{ s.isalpha() }}{{ 'b' in s }}{{ s.strip(t) }}{% endfor %}", "steps"},
		"long integers":   {"{% set n = [20000] %}{% set ns = namespace(x=3 ** n[0]) %}{% for a in range(99999) %}{% set y = ns.x * ns.x %}{% for b in range(99) %}{% set y = ns.x * ns.x %}{% endfor %}{% endfor %}", "steps"},
		"slices":          {"{% for a in range(9999) %}{% set x = range(99999) | list %}{% endfor %}", "steps"},
	} {
		start := cputime.Process()
		tmpl, err := Compile(c.source)
		if err == nil {
			_, err = tmpl.Render(nil, Options{Limits: Limits{Steps: 2_000_000}}) // a tenth, to end sooner
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if d := cputime.Process() - start; d > 20*time.Second {
			t.Errorf("%s took %v", name, d)
		}
	}
}

// Errors name the line of the template.
func TestErrorLines(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{% if x %}\n{{ missing.x }}\n{% endif %}": "line 3: UndefinedError: 'missing' is undefined",
		"\n\n{% nope %}": "line 3: TemplateSyntaxError: Encountered unknown tag 'nope'.",
		"{% set y = 1 %}\n{% for i in [1] %}\n{{ i + 'a' }}\n{% endfor %}":          "line 3: TypeError: unsupported operand type(s) for +: 'int' and 'str'",
		"{% macro m() %}\n{{ raise_exception('no') }}\n{% endmacro %}\n\n{{ m() }}": "line 2: TemplateError: no",
		"{{ 1 }}\n{% include 'x' %}": "line 2: TemplateSyntaxError: {% include %} has no place in a chat template: it is one text without other files, and not HTML",
		"{% if x %}\n\n":             "line 2: TemplateSyntaxError: Unexpected end of template. Jinja was looking for the following tags: 'elif' or 'else' or 'endif'. The innermost block that needs to be closed is 'if'.",
		"{{ x.__class__.__mro__ }}":  "line 1: SecurityError: access to attribute '__class__' of 'str' object is unsafe.",
		"{{ [].append(1) }}":         "line 1: SecurityError: access to attribute 'append' of 'list' object is unsafe.",
	} {
		vars := NewDict()
		vars.Set("x", Str("a"))
		_, err := renderSource(source, vars)
		if err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", source, err, want)
		}
	}
}

// A template may be rendered by many goroutines at once, over the same values.
func TestConcurrent(t *testing.T) {
	vars, cases := languageCases(t)
	for _, c := range cases[:400] {
		tmpl, err := Compile(c.Source)
		if err != nil || c.Text == nil {
			continue
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 3 {
					if out, err := tmpl.Render(vars, Options{Now: testNow}); err != nil || out.Text != *c.Text {
						t.Errorf("%q: %q, %v", c.Source, out.Text, err)
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestFromJSON(t *testing.T) {
	for raw, want := range map[string]string{
		`{"a": [1, -0, 2.50, 1e5, true, null], "b": "\u00e9\ud83d\ude42\n"}`: `{'a': [1, 0, 2.5, 100000.0, True, None], 'b': 'é🙂\n'}`,
		`123456789012345678901234567890`:                                     `123456789012345678901234567890`,
		`[NaN, Infinity, -Infinity]`:                                         `[nan, inf, -inf]`,
		`{"a": 1, "b": 2, "a": 3}`:                                           `{'a': 3, 'b': 2}`,
		` "x" `:                                                              `'x'`,
		`1e999`:                                                              `inf`,
	} {
		v, err := FromJSON([]byte(raw))
		if err != nil || safeRepr(v) != want {
			t.Errorf("%s: %v, %v, want %s", raw, v, err, want)
		}
	}
	for raw, want := range map[string]string{
		``: "a value is missing", `[1,]`: "missing after a comma", `{"a" 1}`: "a colon is missing", `{a: 1}`: "a key in double quotes", `01`: "begins with 0",
		`"\ud800"`: `half of a surrogate pair`, `"\ud83d\u0041"`: "half of a surrogate pair", "\"\n\"": "control character 0x0a", `"a`: "does not end", `[1] 2`: "more text", "\"\xff\"": "not UTF-8",
		`"\x"`: "unknown escape", `-`: "no digits", `[1`: "']' is missing", `tru`: "cannot begin with 't'", strings.Repeat("[", 600): "more than 500 deep", `"\u12`: "four hexadecimal digits",
	} {
		if v, err := FromJSON([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, %v, want %q", raw, v, err, want)
		}
	}
}
