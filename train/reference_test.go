package train

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/session"
)

// storiesReference is PEFT's curve of referenceSpec over 8 seeds; scripts/reference_curve.py made it.
const storiesReference = "testdata/stories_reference.json"

func readStoriesReference(t testing.TB) ([]byte, Reference) {
	t.Helper()
	data, err := os.ReadFile(storiesReference)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseReference(data)
	if err != nil {
		t.Fatal(err)
	}
	return data, r
}

// TestDamagedReferences: what is wrong with a file is said, and none of these is a curve.
func TestDamagedReferences(t *testing.T) {
	whole, good := readStoriesReference(t)
	if good.Subject.Steps != 20 || len(good.Seeds) != 8 || good.MadeBy["peft"] == "" || good.EvalLoss == nil {
		t.Errorf("%+v", good)
	}
	for want, edit := range map[string]func(r *Reference){
		"format is 2, this program reads 1":             func(r *Reference) { r.Format = 2 },
		"subject.steps is 19, loss.mean has 20 numbers": func(r *Reference) { r.Subject.Steps = 19 },
		"loss.spread 3: want the same number":           func(r *Reference) { r.Loss.Spread = r.Loss.Spread[:3] },
		"subject.steps is 0, loss.mean has 0": func(r *Reference) {
			r.Subject.Steps,
				r.Loss = 0, Curve{}
		},
		"window is 0, want 1 to 20":                        func(r *Reference) { r.Window = 0 },
		"window is 21, want 1 to 20":                       func(r *Reference) { r.Window = 21 },
		"a spread takes two at least, each once":           func(r *Reference) { r.Seeds = []int64{1} },
		"seeds are [1 2 1]":                                func(r *Reference) { r.Seeds = []int64{1, 2, 1} },
		"tolerance.k is -1":                                func(r *Reference) { r.Tolerance.K = -1 },
		"tolerance.k is 1e+09":                             func(r *Reference) { r.Tolerance.K = 1e9 },
		"tolerance.floor is 0":                             func(r *Reference) { r.Tolerance.Floor = 0 },
		"subject.configuration has 0 keys":                 func(r *Reference) { r.Subject.Configuration = nil },
		"one of eval_loss_before and eval_loss is missing": func(r *Reference) { r.EvalLoss = nil },
		"subject.rows_sha256 is no SHA-256 in hexadecimal": func(r *Reference) { r.Subject.Rows = strings.Repeat("g", 64) },
		"subject.base_weights_sha256 is no SHA-256":        func(r *Reference) { r.Subject.Base = "" },
		"loss at step 5 is 1e+300":                         func(r *Reference) { r.Loss.Mean[4] = 1e300 },
		"loss at step 1 is 10.2086218 with a spread of -1": func(r *Reference) { r.Loss.Spread[0] = -1 },
		"eval_loss is -1":                                  func(r *Reference) { r.EvalLoss.Mean = -1 },
		"base_model is longer than 200 bytes": func(r *Reference) {
			r.BaseModel = strings.Repeat("m",
				201)
		},
		"or has characters that cannot be printed":              func(r *Reference) { r.BaseModel = "m\x1b[31m" },
		"a text in made_by or subject.configuration is too":     func(r *Reference) { r.MadeBy["peft"] = "\u202e" },
		"made_by or subject.configuration is too long or canno": func(r *Reference) { r.Subject.Configuration["\n"] = "" },
	} {
		r, err := ParseReference(whole)
		if err != nil {
			t.Fatal(err)
		}
		edit(&r)
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseReference(data); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "the reference curve is damaged: ") {
			t.Errorf("error %v\nwant %s", err, want)
		}
	}
	for want, data := range map[string]string{
		"no reference curve of scripts/reference_curve.py": "",
		"line 1, column 1": "loss",
		"unknown field":    `{"format": 1, "losses": []}`,
		"want a number":    strings.Replace(string(whole), `"floor": 0.02`, `"floor": "0.02"`, 1),
		"line ":            string(whole[:len(whole)/2]),
	} {
		if _, err := ParseReference([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: error %v, want %s", data, err, want)
		}
	}
	dir := t.TempDir()
	for name, want := range map[string]string{
		filepath.Join(dir, "none.json"): "no such file", dir: "a folder, want a regular file",
		"embedded:x.json": "this program carries no reference curves",
	} {
		if _, err := OpenReference(name, session.Env{}); err == nil ||
			!strings.HasPrefix(err.Error(), "expect.reference: read "+name+": ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", name, err, want)
		}
	}
	if r, err := OpenReference("", session.Env{}); r != nil || err != nil {
		t.Errorf("no name: %v, %v", r, err)
	}
}

// FuzzReference: no file panics, and what is read can be compared with any losses.
func FuzzReference(f *testing.F) {
	whole, _ := readStoriesReference(f)
	f.Add(whole, 1.0)
	f.Add([]byte(`{"format":1,"window":9007199254740993}`), math.NaN())
	f.Add([]byte(`[]`), math.Inf(1))
	f.Fuzz(func(t *testing.T, data []byte, loss float64) {
		r, err := ParseReference(data)
		if err != nil {
			return
		}
		o := Outcome{Losses: []float64{loss, 1, loss}, Reference: &r, Subject: r.Subject, EvalLoss: &loss}
		judged, err := Expect{Reference: "x"}.Judge(o)
		if err != nil || len(judged) != 1 {
			t.Fatal(err)
		}
		if judged[0].Met && r.Subject.Steps != 3 {
			t.Error("a run of other steps meets the reference")
		}
		if judged[0].Met && (math.IsNaN(loss) || math.IsInf(loss, 0)) {
			t.Error("a loss that is no number meets the reference")
		}
		if _, err := json.Marshal(judged); err != nil {
			t.Error(err)
		}
	})
}
