package keys

import (
	"fmt"
	"math"
	"reflect"
	"testing"
)

type section struct {
	// Rate is a number.
	Rate   float64           `yaml:"rate" default:"2e-4" range:"(0,inf)" resume:"steers"`
	Part   float64           `yaml:"part" range:"[0,1)"`
	Rows   int               `yaml:"rows" default:"3" range:"[1,10]" resume:"fixed"`
	Name   string            `yaml:"name" default:"a" choices:"a b"`
	Kind   string            `yaml:"kind" default:"red"`
	Sep    string            `yaml:"sep" default:"\n"`
	List   []string          `yaml:"list" default:"x y"`
	Free   []string          `yaml:"free,omitempty"`
	On     bool              `yaml:"on" default:"true"`
	Seed   uint64            `yaml:"seed" default:"42" range:"[0,2^64-1]"`
	Ranks  map[string]int    `yaml:"ranks" range:"[1,4096]"`
	Inner  inner             `yaml:"inner"`
	Behind *inner            `yaml:"behind"`
	Hidden string            `yaml:"-" default:"never"`
	Texts  map[string]string `yaml:"texts"`
}

type inner struct {
	Depth int `yaml:"depth" default:"7"`
}

func (section) Choices() map[string][]string {
	return map[string][]string{"kind": {"", "red", "green"}, "list": {"x", "y", "z"}}
}

func TestSetDefaults(t *testing.T) {
	var got section
	SetDefaults(&got)
	want := section{Rate: 2e-4, Rows: 3, Name: "a", Kind: "red", Sep: "\n", List: []string{"x", "y"}, Free: []string{},
		On: true, Seed: 42, Inner: inner{7}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if problems := Check("s.", got); problems != nil {
		t.Errorf("the defaults are refused: %v", problems)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		change func(s *section)
		want   string
	}{
		{func(s *section) { s.Rate = 0 }, "[s.rate: 0 must be above 0]"},
		{func(s *section) { s.Rate = math.NaN() }, "[s.rate: NaN must be above 0]"},
		{func(s *section) { s.Rate = math.Inf(1) }, "[s.rate: +Inf must be above 0]"},
		{func(s *section) { s.Part = 30 }, "[s.part: 30 must be at least 0 and below 1 (0.3 is 30%)]"},
		{func(s *section) { s.Part = -1 }, "[s.part: -1 must be at least 0 and below 1]"},
		{func(s *section) { s.Rows = 11 }, "[s.rows: 11 must be from 1 to 10]"},
		{func(s *section) { s.Name = "" }, `[s.name: "" is not one of a, b]`},
		{func(s *section) { s.Kind = "" }, "[]"},
		{func(s *section) { s.Kind = "gree" }, `[s.kind: "gree" is not one of red, green]`},
		{func(s *section) { s.Kind = "greem" }, `[s.kind: "greem" is not one of red, green; did you mean green?]`},
		{func(s *section) { s.List = []string{"z", "w"} }, `[s.list: "w" is not one of x, y, z]`},
		{func(s *section) { s.Ranks = map[string]int{"v": 2, "q": 0} }, "[s.ranks.q: 0 must be from 1 to 4096]"},
		{func(s *section) { s.Seed = math.MaxUint64 }, "[]"},
	} {
		var s section
		SetDefaults(&s)
		c.change(&s)
		if got := fmt.Sprint(Check("s.", s)); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestEach(t *testing.T) {
	var s section
	SetDefaults(&s)
	var got []string
	see := func(path string, k Key, value any) {
		if k.Resume != "" || path == "inner.depth" || path == "behind.depth" {
			got = append(got, fmt.Sprintf("%s %v %s", path, value, k.Resume))
		}
	}
	Each(s, see)
	s.Behind = &inner{9}
	Each(s, see)
	want := "[rate 0.0002 steers rows 3 fixed inner.depth 7  rate 0.0002 steers rows 3 fixed inner.depth 7  " +
		"behind.depth 9 ]"
	if fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestMalformedTags: a tag that says nothing fails at the first use of its section.
func TestMalformedTags(t *testing.T) {
	for _, v := range []any{
		&struct {
			A int `yaml:"a" range:"1 to 2"`
		}{},
		&struct {
			A int `yaml:"a" default:"one"`
		}{},
		&struct {
			A int `yaml:"a" resume:"perhaps"`
		}{},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v: no panic", v)
				}
			}()
			SetDefaults(v)
		}()
	}
}

func TestInterval(t *testing.T) {
	for text, want := range map[string][2]string{
		"(0,inf)": {"above 0", "above 0"}, "[1,inf)": {"1 or more", "at least 1"}, "[0,1]": {"0 to 1", "from 0 to 1"},
		"[0,1)": {"0 or more, below 1", "at least 0 and below 1"}, "(0,1000]": {"above 0, at most 1000",
			"above 0 and at most 1000"},
		"[2,1048576]": {"2 to 1048576", "from 2 to 1048576"}, "[0,2^64-1]": {"0 to 2^64-1", "from 0 to 2^64-1"},
	} {
		i, err := ParseInterval(text)
		if err != nil || i.String() != want[0] || i.Bounds() != want[1] {
			t.Errorf("%s: %q, %q, %v; want %q", text, i, i.Bounds(), err, want)
		}
	}
	for _, text := range []string{"", "[]", "[1]", "1,2", "[a,2]", "[1,b]", "[2,1]", "[nan,1"} {
		if _, err := ParseInterval(text); err == nil {
			t.Errorf("%q is read as an interval", text)
		}
	}
}
