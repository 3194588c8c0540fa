package tier

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestRegressions: a tier beside kept reports of the same one.
func TestRegressions(t *testing.T) {
	kept := t.TempDir()
	n := 0
	run := func(broken string, change func(*Options)) (Report, *Comparison) {
		n++
		p := validate(t, broken, func(o *Options) {
			o.Dir, o.Kept = filepath.Join(kept, string(rune('a'+n))), []string{kept}
			if change != nil {
				change(o)
			}
		})
		if p.Tiers[0].Comparison == nil {
			t.Fatal(p.Tiers[0].Reason)
		}
		return p, p.Tiers[0].Comparison
	}
	if p, c := run("steady", nil); len(c.Kept) != 0 || len(c.Lines) != 0 || c.Regressions != nil || p.ExitCode != 0 {
		t.Errorf("the first of all: %+v", c)
	}
	if p, c := run("steady", nil); len(c.Kept) != 1 || len(c.Lines) != 3 || c.Regressions != nil || p.ExitCode != 0 {
		t.Errorf("the same again: %+v", c)
	}
	slower := func(o *Options) { o.FailOnRegression = true }
	if p, c := run("slower", slower); len(c.Kept) != 2 || len(c.Regressions) != 1 || !strings.HasPrefix(c.Regressions[0], "median step in ms: 20, was 10, at most 10.1 (above the most of 2 kept") || p.ExitCode != 1 || p.Status != Fail || p.Tiers[0].Status != Fail {
		t.Errorf("slower: exit code %d, %+v", p.ExitCode, c)
	}
	if p, _ := run("slower", nil); p.ExitCode != 0 {
		t.Errorf("without --fail-on-regression: exit code %d", p.ExitCode)
	}
	if err := os.Rename(filepath.Join(kept, "b"), filepath.Join(t.TempDir(), "b")); err != nil {
		t.Fatal(err)
	}
	if _, c := run("steady, other losses", nil); !slices.ContainsFunc(c.Regressions, func(r string) bool { return strings.HasPrefix(r, "the losses differ from those of ") }) {
		t.Errorf("other losses of the same program: %+v", c.Regressions)
	}
	if _, c := run("steady", func(o *Options) { o.About.SHA256 = "of another program" }); c.Regressions != nil {
		t.Errorf("another program: %+v", c.Regressions)
	}
	// The one that failed is not kept to compare with. Reports that are damaged or of something else are named and
	// change nothing.
	for name, text := range map[string]string{"x": `{"schema": "tierlora-tier-report/1", "tiers": [`, "y": `{"schema": "other"}`, "z": "\x00", "w": ""} {
		if err := os.MkdirAll(filepath.Join(kept, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(kept, name, ReportJSON), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(kept, "v", ReportJSON), 0o755); err != nil {
		t.Fatal(err)
	}
	p, c := run("steady", nil)
	if p.ExitCode != 0 || len(c.Notes) != 5 || len(c.Kept) != 4 {
		t.Errorf("beside damaged reports: exit code %d, %d kept, notes %q", p.ExitCode, len(c.Kept), c.Notes)
	}
	if _, c := run("steady", func(o *Options) {
		o.Kept = []string{filepath.Join(kept, "c", ReportJSON), filepath.Join(kept, "nowhere")}
	}); len(c.Kept) != 1 || len(c.Notes) != 1 {
		t.Errorf("one named: %+v", c)
	}
}

// TestComparable: only reports of the same tier, machine, base model and configuration are compared.
func TestComparable(t *testing.T) {
	p := validate(t, "steady", nil)
	path := filepath.Join(t.TempDir(), ReportJSON)
	for what, change := range map[string]func(*Report){
		"":                                      func(*Report) {},
		"another tier":                          func(p *Report) { p.Tiers[0].Tier = "other" },
		"failed":                                func(p *Report) { p.Tiers[0].Status = Fail },
		"another machine":                       func(p *Report) { p.Machine.Cores++ },
		"another base":                          func(p *Report) { p.Tiers[0].BaseSHA256 = "other" },
		"another base at once":                  func(p *Report) { p.Tiers[0].BaseSHA256, p.Tiers[0].ConfigSHA256 = "other", "other" },
		"no figures":                            func(p *Report) { p.Tiers[0].Throughput = nil },
		"it ran small in another configuration": func(p *Report) { p.Tiers[0].ConfigSHA256 = "other" },
	} {
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var kept Report
		if err := json.Unmarshal(data, &kept); err != nil {
			t.Fatal(err)
		}
		change(&kept)
		if data, err = json.Marshal(kept); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		found, note := keptOf(path, p.Machine, p.Tiers[0])
		if (found != nil) != (what == "") || note != "" && note != what {
			t.Errorf("%s: %+v, %q", what, found, note)
		}
	}
}

// TestSpread: one kept report gives a share, several what they differ by.
func TestSpread(t *testing.T) {
	at := func(ms ...float64) *Comparison {
		c := &Comparison{}
		for _, m := range ms {
			c.Kept = append(c.Kept, Kept{MedianMs: m})
		}
		return c
	}
	ms := func(k Kept) float64 { return k.MedianMs }
	for _, x := range []struct {
		kept  []float64
		now   float64
		limit float64
		floor float64
	}{
		{[]float64{100}, 104, 105, 0.01},
		{[]float64{100, 100, 100}, 100.5, 101, 0.01},
		{[]float64{100, 104}, 107, 108, 0.01},
		{[]float64{104, 100}, 109, 108, 0.01},
		{[]float64{100}, 100, 100, 0},
		{[]float64{100, 200}, 101, 100, 0}, // bytes: the last alone counts
	} {
		c := at(x.kept...)
		c.line("ms", x.now, x.kept[0], 0.05, x.floor, ms)
		if l := c.Lines[0]; l.Limit != x.limit || l.OK != (x.now <= x.limit) || (c.Regressions == nil) != l.OK {
			t.Errorf("%v and %v: %+v, %v", x.kept, x.now, l, c.Regressions)
		}
	}
}

func TestFind(t *testing.T) {
	all, err := Find(All)
	if err != nil || len(all) != 5 || all[0].Name != "quick" || all[4].Name != "full" {
		t.Errorf("%v, %v", all, err)
	}
	if some, err := Find("full", "quick", "full"); err != nil || len(some) != 2 || some[0].Name != "full" {
		t.Errorf("%v, %v", some, err)
	}
	if _, err := Find("quickly"); err == nil || !strings.Contains(err.Error(), `no tier "quickly"; there are quick, convergence, memory, extended, full, `) {
		t.Error(err)
	}
}

// TestParseBases: three stand-ins for five tiers, one of its own for a tier, and what can't be meant.
func TestParseBases(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("x=y", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tiers string
		given []string
		want  map[string]string
		err   string
	}{
		{"all", nil, map[string]string{}, ""},
		{"all", []string{"135m=a", "1.1b=b", "7b=c"}, map[string]string{"quick": "a", "convergence": "a", "memory": "b", "extended": "b", "full": "c"}, ""},
		{"all", []string{"1.1b=b", "extended=own=er"}, map[string]string{"memory": "b", "extended": "own=er"}, ""},
		{"quick convergence", []string{"x=y"}, map[string]string{"quick": "x=y", "convergence": "x=y"}, ""},
		{"quick cpu_stories_quick", []string{"a"}, map[string]string{"quick": "a"}, ""},
		{"all", []string{"a"}, nil, "--base a would be the base model of tiers of different sizes: write --base 135m=DIR, --base 1.1b=DIR"},
		{"all", []string{"135m=a", "135m=b"}, nil, "--base 135m=b: a second base model"},
		{"quick", []string{"a", "b"}, nil, "--base b: a second base model"},
		{"quick", []string{"9b=a"}, nil, "--base 9b=a: 9b is no size and no tier; there are 135m, 1.1b, 7b, quick, "},
		{"quick", []string{"7b="}, nil, "--base 7b=: name a folder or a model"},
		{"quick", []string{"7b=a"}, nil, "--base 7b=a: no tier of this call takes it"},
		{"cpu_stories_quick", []string{"a"}, nil, "--base a: no tier of this call takes it"},
	} {
		tiers, err := Find(strings.Fields(c.tiers)...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseBases(tiers, c.given)
		if c.err == "" && (err != nil || !reflect.DeepEqual(got, c.want)) || c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)) {
			t.Errorf("%s %q: %v, %v", c.tiers, c.given, got, err)
		}
	}
}
