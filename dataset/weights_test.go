package dataset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestRowWeights: the column weight reaches each row's tokens in memory, in the token cache, in a stream and in packed
// batches, and rows of weight 0 are dropped. Without dataset.weights nothing changes.
func TestRowWeights(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "d.jsonl")
	rows := `{"prompt":"ab","completion":"cd"}
{"prompt":"ab","completion":"ef","weight":0.5}
{"prompt":"ab","completion":"gh","weight":1}
{"prompt":"ab","completion":"ij","weight":0}
{"prompt":"ab","completion":"kl","weight":"2"}
{"prompt":"ab","completion":"mn","weight":null}
`
	if err := os.WriteFile(path, []byte(rows), 0o644); err != nil {
		t.Fatal(err)
	}
	want := [][]float32{nil, {1, 1, .5, .5, .5}, nil, {1, 1, 2, 2, 2}, nil}
	cfg := Default()
	cfg.Path, cfg.Weights, cfg.MaxLength, cfg.Shuffle = path, true, 64, false
	load := func(cfg Config) (*Set, *Report) {
		t.Helper()
		set, report, err := Load(context.Background(), cfg, bytesTokenizer{print: "weights"})
		if err != nil {
			t.Fatal(err)
		}
		return set, report
	}
	check := func(what string, rows Rows) {
		t.Helper()
		for i, w := range want {
			row := rows.Row(i)
			n := len(row.IDs)
			if w == nil && row.Weights == nil {
				continue
			}
			if w == nil || len(row.Weights) != n || !reflect.DeepEqual(row.Weights[n-3:], w[2:]) || row.Weights[0] != 1 {
				t.Errorf("%s: row %d has the weights %v, want %v", what, i, row.Weights, w)
			}
		}
	}
	set, report := load(cfg)
	check("memory", set.Train)
	if report.Weighted != (WeightReport{Rows: 2, Least: 0.5, Most: 2}) || report.Kept != 5 {
		t.Errorf("the report is %+v, %d rows", report.Weighted, report.Kept)
	}
	if !strings.Contains(report.String(), "weights: 2 rows with weights from 0.5 to 2") {
		t.Errorf("the report says\n%s", report)
	}
	cached := cfg
	cached.CacheDir = filepath.Join(dir, "cache")
	for _, what := range []string{"written cache", "read cache"} {
		again, _ := load(cached)
		check(what, again.Train)
		if digest(again.Train) != digest(set.Train) {
			t.Errorf("%s: another digest", what)
		}
	}
	plain := cfg
	plain.Weights = false
	unweighted, _ := load(plain)
	if digest(unweighted.Train) == digest(set.Train) || unweighted.Train.Len() != 6 {
		t.Error("weights that are not read count")
	}
	stream := cfg
	stream.Streaming = true
	streamed, _ := load(stream)
	check("stream", streamed.Train)
	l, err := NewLoader(set.Train, Options{BatchSize: 1, Packing: true, T: 64, Longest: 64})
	if err != nil {
		t.Fatal(err)
	}
	w, err := l.NextStep(1, false)
	if err != nil {
		t.Fatal(err)
	}
	for k, i := range w.Batches[0].Rows {
		if got, wanted := w.Batches[0].RowWeights(k), set.Train.Row(i).Weights; !reflect.DeepEqual(got, wanted) {
			t.Errorf("packed row %d has the weights %v, want %v", i, got, wanted)
		}
	}
}

// TestWeightMessages: rows whose weights are none are refused with their place.
func TestWeightMessages(t *testing.T) {
	row := func(weight string) string { return `{"prompt":"a","completion":"b","weight":` + weight + `}` }
	pair := `{"prompt":"a","chosen":"b","rejected":"c","weight":2}`
	for _, c := range []struct{ row, want string }{
		{row("-1"), `field "weight" is -1, want 0 to 1000`},
		{row("1001"), `field "weight" is 1001, want 0 to 1000`},
		{row("1e999"), `field "weight" is "1e999", want a number`},
		{row(`"NaN"`), `field "weight" is NaN, want 0 to 1000`},
		{row(`"+Inf"`), `field "weight" is +Inf, want 0 to 1000`},
		{row(`"much"`), `field "weight" is "much", want a number`},
		{row(`""`), `field "weight" is "", want a number`},
		{row("true"), `field "weight" is a boolean, want a number`},
		{row("[1]"), `field "weight" is a list, want a number`},
		{row("{}"), `field "weight" is an object, want a number`},
		{pair, `field "weight": rows of preferences have no weights: remove dataset.weights or the field`},
	} {
		path := filepath.Join(t.TempDir(), "d.jsonl")
		if err := os.WriteFile(path, []byte(c.row), 0o644); err != nil {
			t.Fatal(err)
		}
		cfg := Default()
		cfg.Path, cfg.Weights = path, true
		_, _, err := Load(context.Background(), cfg, bytesTokenizer{print: "weights"})
		if got, want := fmt.Sprint(err), path+":1: "+c.want; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestMessageWeights: a message's weight is that of its trained tokens, times the row's, and the tokens of other messages
// keep one; train: true beside a weight agrees with it.
func TestMessageWeights(t *testing.T) {
	const talk = `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho","weight":0.5},` +
		`{"role":"user","content":"ha"},{"role":"assistant","content":"he","train":true,"loss_weight":4},` +
		`{"role":"user","content":"hu"},{"role":"assistant","content":"hy","weight":1},` +
		`{"role":"user","content":"hi"},{"role":"assistant","content":"no","weight":0}],"weight":0.25}`
	set, report, err := withTemplate(t, talk, plainTemplate, func(c *Config) { c.Weights = true })
	if err != nil {
		t.Fatal(err)
	}
	row := set.Train.Row(0)
	var found []float32
	for i, w := range row.Weights {
		switch {
		case row.Labels[i] == Ignore && w != 1:
			t.Errorf("token %d is not trained and has the weight %v", i, w)
		case row.Labels[i] != Ignore && (len(found) == 0 || found[len(found)-1] != w):
			found = append(found, w)
		}
	}
	if want := []float32{0.125, 1, 0.25}; !reflect.DeepEqual(found, want) {
		t.Errorf("the weights are %v, want %v", found, want)
	}
	if report.Weighted != (WeightReport{Rows: 1, Least: 0.125, Most: 1}) {
		t.Errorf("the report is %+v", report.Weighted)
	}
	for _, c := range []struct{ message, want string }{
		{`"weight":-0.5`, "messages[0].weight is -0.5, want 0 to 1000"},
		{`"weight":1001`, "messages[0].weight is 1001, want 0 to 1000"},
		{`"loss_weight":[1]`, "messages[0].loss_weight is a list, want true, false or a number"},
		{`"weight":0.5,"loss_weight":0.25`, "messages[0] says weight and loss_weight, which contradict each other"},
		{`"train":false,"weight":0.5`, "messages[0] says train and weight, which contradict each other"},
	} {
		_, _, err := withTemplate(t, `{"messages":[{"role":"assistant","content":"a",`+c.message+`}]}`, plainTemplate,
			func(c *Config) { c.Weights = true })
		if got, want := fmt.Sprint(err), "data.jsonl:1: "+c.want; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	_, _, err = withTemplate(t, talk, plainTemplate, func(c *Config) { c.Weights, c.TrainOn = true, "all" })
	want := "data.jsonl:1: a message has a weight of its own, and dataset.train_on: all trains all tokens alike"
	if fmt.Sprint(err) != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
