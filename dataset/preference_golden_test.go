package dataset

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/jinja"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// trlRow is a row of testdata/preference_trl.json.gz and what TRL makes of it.
type trlRow struct {
	Name   string
	Row    map[string]json.RawMessage
	Prompt json.RawMessage // as TRL extracts it
	DPO    [3][]int32      // prompt, chosen, rejected
	Cut    []trlSide       // chosen, rejected at max_length; none = dropped
	KTO    trlSide
	KTOCut trlSide `json:"kto_cut"`
	Reward bool    `json:"reward_fits"`
}

// trlSide is a sequence and its first trained token.
type trlSide struct {
	ids  []int32
	from int
}

func (s *trlSide) UnmarshalJSON(text []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil || len(parts) == 0 {
		return err
	}
	if err := json.Unmarshal(parts[0], &s.ids); err != nil {
		return err
	}
	return json.Unmarshal(parts[1], &s.from)
}

// check compares a sequence of a row with TRL's.
func (s trlSide) check(t *testing.T, what string, r Row, k int) {
	t.Helper()
	ids, labels := r.Sequence(k)
	from := max(s.from, 1) // nothing predicts a sequence's first token
	if !slices.Equal(ids, s.ids) || maskedPrefix(labels) != from || slices.Contains(labels[from:], Ignore) {
		t.Errorf("%s is %v, trained from %d; TRL has %v from %d", what, ids, maskedPrefix(labels), s.ids, s.from)
	}
}

// TestPreferenceIDsOfTRL: ids, the border between prompt and answer, start and end tokens and truncation of pairs and
// of labelled answers equal TRL's, for texts and for conversations in three templates. A pair of equal answers, which
// TRL keeps, is dropped.
func TestPreferenceIDsOfTRL(t *testing.T) {
	text := golden.Unpacked(t, filepath.Join("testdata", "preference_trl.json.gz"))
	var all struct {
		Sets []struct {
			Name, Template string
			MaxLength      int `json:"max_length"`
			Rows           []trlRow
		}
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	folder, err := configs.Model("stories260K")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.LoadFS(folder, ".")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, set := range all.Sets {
		load := func(name string, row map[string]json.RawMessage, change func(*Config)) (Rows, *Report) {
			t.Helper()
			line, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			cfg := Default()
			cfg.Path, cfg.Preferences = "d.jsonl", true
			cfg.Chat = func() (*chat.Sources, error) {
				tokens := jinja.NewDict()
				tokens.Set("bos_token", jinja.Str("<s>"))
				tokens.Set("eos_token", jinja.Str("</s>"))
				return &chat.Sources{Templates: map[string]string{"default": set.Template}, Tokens: tokens}, nil
			}
			change(&cfg)
			loaded, report, err := LoadFS(context.Background(), fstest.MapFS{"d.jsonl": {Data: line}}, cfg, tok)
			if err != nil {
				if report == nil || report.DroppedRows() == 0 {
					t.Fatalf("%s, %s: %v", set.Name, name, err)
				}
				return Memory(nil), report
			}
			return loaded.Train, report
		}
		short := func(c *Config) { c.MaxLength = set.MaxLength }
		for _, r := range set.Rows {
			t.Run(set.Name+"/"+r.Name, func(t *testing.T) {
				same := r.Name == "same answers"
				for _, cut := range []bool{false, true} {
					change, want := func(*Config) {}, []trlSide{
						{slices.Concat(r.DPO[0], r.DPO[1]), len(r.DPO[0])}, {slices.Concat(r.DPO[0], r.DPO[2]), len(r.DPO[0])}}
					kto, why := r.KTO, ""
					if cut {
						change, want, kto, why = short, r.Cut, r.KTOCut, dropCutAnswer
					}
					if same {
						want, why = nil, dropSamePair
					}
					rows, report := load(r.Name, r.Row, change)
					if report.Format != "preference" {
						t.Errorf("the format is %s", report.Format)
					}
					if (rows.Len() == 0) != (len(want) == 0) || rows.Len() == 0 && report.Dropped[0].Reason != why {
						t.Fatalf("cut %v: %d rows (%v), TRL has %d sequences", cut, rows.Len(), report.Dropped, len(want))
					}
					for k, side := range want {
						if n := rows.Row(0).Sequences(); n != 2 {
							t.Fatalf("%d sequences", n)
						}
						side.check(t, []string{"chosen", "rejected"}[k], rows.Row(0), k)
						checked++
					}
					answer := map[string]json.RawMessage{"prompt": r.Prompt, "completion": r.Row["chosen"], "label": []byte("true")}
					if _, has := r.Row["prompt"]; !has {
						answer["completion"] = withoutPrompt(t, r)
					}
					rows, report = load(r.Name, answer, change)
					if report.Format != "unpaired" || (rows.Len() == 0) != (kto.ids == nil) {
						t.Fatalf("cut %v: %d labelled rows of format %s, TRL has %v", cut, rows.Len(), report.Format, kto)
					}
					if rows.Len() > 0 {
						kto.check(t, "the labelled answer", rows.Row(0), 0)
						checked++
						if d := rows.Row(0).Desirable; d != Desirable || rows.Row(0).Sequences() != 1 {
							t.Errorf("the labelled answer is %v in %d sequences", d, rows.Row(0).Sequences())
						}
					}
					if same {
						continue
					}
					rows, _ = load(r.Name, r.Row, func(c *Config) { change(c); c.Unpaired = true })
					if has := rows.Len() > 0 && rows.Row(0).Desirable == Desirable; has != (kto.ids != nil) {
						t.Errorf("cut %v: the chosen answer is there: %v, TRL has %v", cut, has, kto)
					} else if has {
						kto.check(t, "the chosen answer of a pair", rows.Row(0), 0)
						checked++
					}
				}
				drop := func(c *Config) { c.MaxLength, c.OnTruncated = set.MaxLength, TruncatedDrop }
				if rows, _ := load(r.Name, r.Row, drop); !same && (rows.Len() == 1) != r.Reward {
					t.Errorf("on_truncated drop keeps %d rows, RewardTrainer %v", rows.Len(), r.Reward)
				}
			})
		}
	}
	if checked < 150 {
		t.Errorf("%d sequences were compared", checked)
	}
}

// withoutPrompt is the chosen answer behind the prompt that TRL extracts.
func withoutPrompt(t *testing.T, r trlRow) json.RawMessage {
	t.Helper()
	if kindOf(r.Prompt) == "a list" {
		return joinMessages(splitList(r.Row["chosen"])[len(splitList(r.Prompt)):])
	}
	rest, err := json.Marshal(textOf(r.Row["chosen"])[len(textOf(r.Prompt)):])
	if err != nil {
		t.Fatal(err)
	}
	return rest
}
