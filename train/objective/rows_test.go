package objective

import (
	"context"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/dataset"
)

// letters is a tokenizer with an id for each byte, and 1 as the end.
type letters struct{}

func (letters) IDs(text string, _ bool) (ids []int32) {
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids
}

func (letters) BOS() (int32, bool)          { return 0, false }
func (letters) EOS() (int32, bool)          { return 1, true }
func (letters) PAD() (int32, bool)          { return 0, true }
func (letters) AddsBOS() bool               { return false }
func (letters) Decode([]int32, bool) string { return "" }
func (letters) Token(id int32) (string, bool) {
	if id == 1 {
		return "$", true
	}
	return string(rune(id)), id > 1 && id < 256
}

// TestSupervisedTakesSingleSequences: a supervised objective refuses pairs and labelled answers, also as validation
// rows, with what to do.
func TestSupervisedTakesSingleSequences(t *testing.T) {
	const (
		pair     = `{"prompt":"a","chosen":"b","rejected":"c"}` + "\n"
		labelled = `{"prompt":"a","completion":"b","label":true}` + "\n"
		single   = `{"prompt":"a","completion":"b"}` + "\n"
		chosen   = "to train on the chosen answers alone write dataset.format: completion with dataset.fields: " +
			"{prompt: prompt, completion: chosen}, or where the answers are lists of messages dataset.format: messages with " +
			"dataset.fields: {messages: chosen}"
	)
	for _, c := range []struct {
		rows, val, format, want string
	}{
		{rows: single},
		{rows: labelled}, // its label is not read
		{rows: pair, want: "d.jsonl has 1 pair of sequences (format preference): " + chosen},
		{rows: pair + `{"prompt":"a","chosen":"d","rejected":"c"}`,
			want: "d.jsonl has 2 pairs of sequences (format preference): " + chosen},
		{rows: single, val: pair, want: "v.jsonl has 1 pair of sequences (format preference): " + chosen},
		{rows: labelled, format: "unpaired", want: "d.jsonl has 1 answer with a label (format unpaired): " +
			"to train on all answers whatever their label write dataset.format: completion, or where they are lists of " +
			"messages dataset.format: chat_completion"},
	} {
		cfg := dataset.Default()
		cfg.Path, cfg.Format = "d.jsonl", c.format
		files := fstest.MapFS{"d.jsonl": {Data: []byte(c.rows)}}
		if c.val != "" {
			cfg.ValPath, files["v.jsonl"] = "v.jsonl", &fstest.MapFile{Data: []byte(c.val)}
		}
		_, report, err := dataset.LoadFS(context.Background(), files, cfg, letters{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := CheckRows(Default, Of(Default, Config{}), report); err != nil {
			got = err.Error()
		}
		want := c.want
		if want != "" {
			want = "training.objective: cross_entropy takes single sequences, and " + want
		}
		if got != want {
			t.Errorf("%s\ngot  %s\nwant %s", c.rows, got, want)
		}
	}
	for name, want := range map[string]dataset.Config{
		Default: {}, dpoName: {Preferences: true},
		rewardName: {Preferences: true, Aim: dataset.Aim{Kind: dataset.AimMargin}},
		rerankName: {Aim: dataset.Aim{Kind: dataset.AimLabels, Count: 1}},
	} {
		got := Reading(Of(name, Config{}), dataset.Config{}, 1)
		if got.Preferences != want.Preferences || !reflect.DeepEqual(got.Aim, want.Aim) {
			t.Errorf("%s reads rows with preferences %v and aim %v", name, got.Preferences, got.Aim)
		}
	}
}
