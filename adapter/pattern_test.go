package adapter

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestPythonPatterns compares with Python 3.11: re.fullmatch for target_modules, and PEFT's re.match of an end for the keys of
// rank_pattern and alpha_pattern. A digit for each path tells whether it matches.
func TestPythonPatterns(t *testing.T) {
	paths := []string{
		"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj", "model.language_model.layers.1.self_attn.v_proj",
		"model.visual.blocks.0.attn.q_proj", "xq_proj", "q_proj",
	}
	check := func(what, text, want string, match func(path string) bool) {
		t.Helper()
		got := ""
		for _, path := range paths {
			if match(path) {
				got += "1"
			} else {
				got += "0"
			}
		}
		if got != want {
			t.Errorf("%s %s: %s, Python has %s", what, text, got, want)
		}
	}
	for text, want := range map[string]string{
		`^(?!.*visual).*(?:q_proj|v_proj).*`:        "101011", // LLaMA-Factory's form
		`^(model(?=\.).*\.(q_proj|v_proj))$`:        "101100", // ms-swift's form
		`.*(?<!x)q_proj`:                            "100101",
		`(?P<a>model)\.layers\.\d+\..*`:             "110000",
		`model\.layers\.(?:[0-9]|1[01])\.(?!mlp).*`: "100000",
		`.*\.(\w)_proj\Z`:                           "101100",
		`(.)(?:\1|.)*`:                              "111111",
		`^(?!.*(?:layers\.1\b|visual)).*_proj$`:     "110011",
		`.*\.(?:q|v)_proj`:                          "101100",
	} {
		c := Default()
		c.TargetModules = Targets{text}
		if problems := c.Validate(); problems != nil {
			t.Errorf("%s: %v", text, problems)
		}
		check("target_modules", text, want, c.Adapts)
	}
	for text, want := range map[string]string{`(?<!x)q_proj`: "100101", `self_attn\.(?!v).*`: "100000", `q_proj`: "100101"} {
		c := Default()
		c.RankPattern = map[string]int{text: 3}
		if problems := c.Validate(); problems != nil {
			t.Errorf("%s: %v", text, problems)
		}
		check("rank_pattern", text, want, func(path string) bool { return c.Rank(path) == 3 })
	}
}

// TestPatternsEnd: an expression that backtracks without end is an error within a second, whatever the number of layers.
func TestPatternsEnd(t *testing.T) {
	c := Default()
	c.TargetModules = Targets{`(?=m)((?:[a-z_.0-9]+)+)+!`}
	if problems := c.Validate(); problems != nil {
		t.Fatal(problems)
	}
	began := time.Now()
	for range 1000 {
		if c.Adapts("model.layers.0.self_attn.q_proj.and.a.path.that.is.long") {
			t.Fatal("it matches")
		}
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
	if err := c.broken(); err == nil || !strings.Contains(err.Error(), "takes longer than 250ms on model.layers.0") {
		t.Errorf("the error is %v", err)
	}
	c.TargetModules = Targets{strings.Repeat("(", maxPattern+1)}
	if problems := c.Validate(); len(problems) != 1 || !strings.Contains(problems[0].Error(), "more than the 16384 that an expression may have") {
		t.Errorf("a long one: %v", problems)
	}
}

// TestRepeatsFromZero: {,n} is {0,n} to Python's re; the answers are those of re.fullmatch.
func TestRepeatsFromZero(t *testing.T) {
	for _, c := range []struct {
		expression, path string
		want             bool
	}{
		{`layers\.\d{,2}\.q_proj`, "layers.12.q_proj", true},
		{`layers\.\d{,2}\.q_proj`, "layers.123.q_proj", false},
		{`layers\.\d{,}\.q_proj(?!x)`, "layers.123.q_proj", true},
		{`(?<!x)q{,1}_proj`, "_proj", true},
		{`[{,2}]+`, "{,2}", true},
		{`[]{,2}]+`, "{]", true},
		{`[^]{,2}]+`, "0", true},
		{`a\{,2}`, "a{,2}", true},
		{`a{,b}`, "a{,b}", true},
	} {
		p, err := whole(c.expression)
		if err != nil {
			t.Errorf("%s: %v", c.expression, err)
			continue
		}
		if got := p.match(c.path); got != c.want {
			t.Errorf("%s matches %s: %v, Python %v", c.expression, c.path, got, c.want)
		}
	}
}

// A long expression is cut between two characters in the error about it.
func TestLongExpressionIsCutBetweenCharacters(t *testing.T) {
	for shift := range 3 {
		p := &pattern{text: strings.Repeat("a", shift) + strings.Repeat("東", 100)}
		p.note("model.layers.0", errors.New("too slow"))
		if text := p.err().Error(); strings.Contains(text, `\x`) || !strings.Contains(text, "東…") {
			t.Errorf("shift %d: the error is %v", shift, text)
		}
	}
}
