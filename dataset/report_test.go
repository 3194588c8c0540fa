package dataset

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const contractRows = `{"q":"one","a":"1"}
{"q":"two","a":""}
{"q":"three","a":"a long answer"}
{"q":"a prompt that fills it all","a":"x"}
{"q":"five","a":"5"}
{"q":"six","a":""}
{"q":"seven","a":""}
{"q":"eight","a":""}
`

func contractConfig(c *Config) {
	c.Fields = map[string]string{"prompt": "q", "completion": "a"}
	c.MaxLength = 12
}

func TestReport(t *testing.T) {
	_, report, err := loadText(t, "d.jsonl", contractRows, contractConfig)
	if err != nil {
		t.Fatal(err)
	}
	want := `data: d.jsonl (sha256 2ecdbbf06534), format completion, found from the keys of the first row (prompt=q, completion=a)
  rows: 8 read, 3 kept, 5 dropped
  dropped: 4 because the answer is empty (d.jsonl:2, d.jsonl:6, d.jsonl:7, …)
  dropped: 1 because the answer is cut off entirely at max_length (d.jsonl:4)
  cut: 1 at max_length, 9 tokens lost (d.jsonl:3)
  tokens: 27, trained 9 (33.3%), longest row 12
  longest: 30 tokens (d.jsonl:4); shortest: 7 tokens (d.jsonl:1)
  trained: the answer and </s> behind it; the prompt is context`
	if report.String() != want {
		t.Errorf("got\n%s\nwant\n%s", report, want)
	}
}

func TestReportOfDroppedCuts(t *testing.T) {
	set, report, err := loadText(t, "d.jsonl", contractRows, func(c *Config) { contractConfig(c); c.OnTruncated = TruncatedDrop })
	if err != nil {
		t.Fatal(err)
	}
	want := []Drop{{dropEmptyAnswer, 4, []string{"d.jsonl:2", "d.jsonl:6", "d.jsonl:7"}}, {dropCut, 2, []string{"d.jsonl:3", "d.jsonl:4"}}}
	if !reflect.DeepEqual(report.Dropped, want) || set.Train.Len() != 2 {
		t.Errorf("%d kept, dropped %v", set.Train.Len(), report.Dropped)
	}
	if r := set.Train.Row(1); r.Index != 4 || r.Where() != "d.jsonl:5" {
		t.Errorf("second row is %d, %s", r.Index, r.Where())
	}
}

func TestValPath(t *testing.T) {
	files := fstest.MapFS{"a.jsonl": {Data: []byte(`{"text":"a"}`)}, "b.json": {Data: []byte(`[{"text":"b"},{"text":"c"}]`)}}
	cfg := Default()
	cfg.Path, cfg.ValPath = "a.jsonl", "b.json"
	set, report, err := LoadFS(context.Background(), files, cfg, bytesTokenizer{})
	if err != nil {
		t.Fatal(err)
	}
	if set.Train.Len() != 1 || set.Val.Len() != 2 || report.Val.Kept != 2 || report.ValRows != 2 {
		t.Errorf("%d train, %d val", set.Train.Len(), set.Val.Len())
	}
	if s := report.String(); !strings.Contains(s, "\nvalidation data: b.json (sha256 075c249ef8c7), format text, found from the keys of the first row\n  rows: 2 read, 2 kept, 0 dropped\n") {
		t.Errorf("report\n%s", s)
	}
	cfg.ValPath = "c.jsonl"
	if _, _, err := LoadFS(context.Background(), files, cfg, bytesTokenizer{}); err == nil || err.Error() != "read data: open c.jsonl: file does not exist" {
		t.Errorf("absent validation file: %v", err)
	}
}

func TestValSplit(t *testing.T) {
	var file strings.Builder
	for i := range 40 {
		file.WriteString(`{"text":"` + strings.Repeat("x", i+1) + "\"}\n")
	}
	held := func(seed uint64) []int {
		set, report, err := loadText(t, "d.jsonl", file.String(), func(c *Config) { c.ValSplit, c.Seed = 0.1, seed })
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(report.String(), "\n  rows: 40 read, 40 kept, 0 dropped; 36 to train on, 4 held out\n") {
			t.Errorf("report\n%s", report)
		}
		seen := map[int]bool{}
		for _, r := range append(all(set.Train), all(set.Val)...) {
			seen[r.Index] = true
		}
		if set.Val.Len() != 4 || len(seen) != 40 {
			t.Fatalf("%d held out, %d rows in all", set.Val.Len(), len(seen))
		}
		var indices []int
		for _, r := range all(set.Val) {
			indices = append(indices, r.Index)
		}
		return indices
	}
	if a, b := held(1), held(1); !slices.Equal(a, b) || !slices.IsSorted(a) {
		t.Errorf("one seed, two splits: %v, %v", a, b)
	}
	if a, b := held(1), held(2); slices.Equal(a, b) {
		t.Errorf("two seeds, one split: %v", a)
	}
}

func TestSequenceLength(t *testing.T) {
	for _, c := range []struct {
		change          func(*Config)
		positions, want int
	}{
		{func(*Config) {}, 0, 16}, // <s>, 12 bytes, </s>, rounded up
		{func(c *Config) { c.MaxLength = 15 }, 0, 15},
		{func(c *Config) { c.PadTo = PadMaxLength }, 0, 512},
		{func(c *Config) { c.Packing = true }, 0, 16}, // which is all there is
		{func(*Config) {}, 15, 15},
		{func(*Config) {}, 14, 14},
		{func(*Config) {}, 13, 14},                                         // which no model with 13 positions takes
		{func(c *Config) { c.Packing, c.Streaming = true, true }, 15, 512}, // nobody knows what comes
	} {
		set, _, err := loadText(t, "d.jsonl", `{"text":"twelve bytes"}`, c.change)
		if err != nil {
			t.Fatal(err)
		}
		set.Positions = c.positions
		l, err := set.TrainLoader(2)
		if err != nil {
			t.Fatal(err)
		}
		if s := l.Shape(); s.T != c.want || s.Longest != c.want {
			t.Errorf("T is %d and the longest %d, want %d", s.T, s.Longest, c.want)
		}
	}
}

func TestInspect(t *testing.T) {
	set, _, err := loadText(t, "d.jsonl", "{\"prompt\":\"é\",\"completion\":\"ab\\nc\"}\n{\"prompt\":\"x\",\"completion\":\""+strings.Repeat("long ", 60)+"\"}", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, tokens, err := set.Inspect(0, bytesTokenizer{})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	trained := 0
	for i, tok := range tokens {
		texts = append(texts, tok.Text)
		if tok.Trained {
			trained++
		}
		if tok.Trained != (i >= 4) {
			t.Errorf("token %d: trained %v", i, tok.Trained)
		}
	}
	if want := []string{"<s>", "", "é", "\n", "a", "b", "\n", "c", "</s>"}; !slices.Equal(texts, want) || trained != 5 {
		t.Errorf("texts %q, want %q; %d trained", texts, want, trained)
	}
	row, tokens, err := set.Inspect(1, bytesTokenizer{})
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, tok := range tokens {
		all.WriteString(tok.Text)
	}
	if want := (bytesTokenizer{}).Decode(row.IDs, false); all.String() != want {
		t.Errorf("the texts make %q, want %q", all.String(), want)
	}
	if _, _, err := set.Inspect(2, bytesTokenizer{}); err == nil || err.Error() != "inspect row 2: there are 2 training and 0 validation rows" {
		t.Errorf("row 2: %v", err)
	}
}

func TestDuplicatesAndLeaks(t *testing.T) {
	rows := "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"a\"}\n{\"text\":\"a\"}\n"
	files := fstest.MapFS{"a.jsonl": {Data: []byte(rows)}, "b.jsonl": {Data: []byte("{\"text\":\"b\"}\n{\"text\":\"c\"}")}}
	cfg := Default()
	cfg.Path, cfg.ValPath = "a.jsonl", "b.jsonl"
	_, report, err := LoadFS(context.Background(), files, cfg, bytesTokenizer{})
	if err != nil {
		t.Fatal(err)
	}
	if report.Duplicates != 2 || report.Leaked != 1 {
		t.Errorf("%d duplicates, %d leaked, want 2 and 1", report.Duplicates, report.Leaked)
	}
	for _, want := range []string{"\n  duplicates: 2 rows have the tokens of an earlier row\n", "\n  warning: leak: 1 of the 2 validation rows are training rows too; the validation loss is lower than on new rows\n"} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("no %q in\n%s", want, report)
		}
	}
}

// TestReportsAddUp: every number of a report is summed up, or is named here with what it is instead.
func TestReportsAddUp(t *testing.T) {
	other := map[string]string{
		"Files": "counts the reports", "Taken": "is of one source", "Longest": "the largest", "Duplicates": "counted over all rows",
		"TrainRows": "after the split", "ValRows": "after the split", "Leaked": "counted over all rows", "Weight": "is of one source",
	}
	number := func(v reflect.Value) bool { return v.CanInt() || v.CanFloat() }
	var a, b Report
	fill := func(r *Report, n int) {
		for _, of := range []reflect.Value{reflect.ValueOf(r).Elem(), reflect.ValueOf(&r.Chat).Elem()} {
			for i := range of.NumField() {
				switch f := of.Field(i); {
				case f.CanInt():
					f.SetInt(int64(n * (i + 3)))
				case f.Type() == reflect.TypeFor[Drop]():
					f.Set(reflect.ValueOf(Drop{Reason: "r", Count: n * (i + 3), Where: []string{"a:1", "a:2"}}))
				}
			}
		}
		r.Dropped = []Drop{{Reason: "r", Count: n}}
	}
	fill(&a, 1)
	fill(&b, 10)
	sum := *joinReports([]*Report{&a, &b}, nil)
	checked := 0
	for _, of := range []struct{ sum, a, b reflect.Value }{
		{reflect.ValueOf(sum), reflect.ValueOf(a), reflect.ValueOf(b)}, {reflect.ValueOf(sum.Chat), reflect.ValueOf(a.Chat), reflect.ValueOf(b.Chat)},
	} {
		for i := range of.sum.NumField() {
			name, f := of.sum.Type().Field(i).Name, of.sum.Field(i)
			switch {
			case other[name] != "" || !number(f) && f.Type() != reflect.TypeFor[Drop]():
				continue
			case number(f) && f.Int() != of.a.Field(i).Int()+of.b.Field(i).Int():
				t.Errorf("%s: %d and %d give %d", name, of.a.Field(i).Int(), of.b.Field(i).Int(), f.Int())
			case !number(f) && f.Interface().(Drop).Count != 11*(i+3):
				t.Errorf("%s: the sum is %v", name, f)
			}
			checked++
		}
	}
	if checked < 19 || sum.Dropped[0].Count != 11 {
		t.Errorf("%d numbers were compared, %v", checked, sum.Dropped)
	}
}

// TestValSplitHoldsWholeRows: rows that were made of one text or conversation are on one side, in one file and in several.
func TestValSplitHoldsWholeRows(t *testing.T) {
	var texts strings.Builder
	for i := range 40 {
		texts.WriteString(`{"text":"` + strings.Repeat("x", 30*(i%5)+1) + "\"}\n")
	}
	files := fstest.MapFS{"d/a.jsonl": {Data: []byte(texts.String())}, "d/b.jsonl": {Data: []byte(texts.String())}}
	for _, path := range []string{"d", "d/a.jsonl"} {
		cfg := Default()
		cfg.Path, cfg.MaxLength, cfg.ValSplit = path, 32, 0.25
		set, _, err := LoadFS(context.Background(), files, cfg, bytesTokenizer{})
		if err != nil {
			t.Fatal(err)
		}
		type source struct {
			path  string
			index int
		}
		train, held := map[source]bool{}, map[source]bool{}
		for _, r := range all(set.Train) {
			train[source{r.Source, r.Index}] = true
		}
		for _, r := range all(set.Val) {
			held[source{r.Source, r.Index}] = true
			if train[source{r.Source, r.Index}] {
				t.Errorf("%s is on both sides", r.Where())
			}
		}
		if len(held)*4 != len(held)+len(train) || set.Val.Len() <= len(held) {
			t.Errorf("%s: %d source rows are held out of %d, in %d rows", path, len(held), len(held)+len(train), set.Val.Len())
		}
	}
	// where no row was split the choice is what it always was
	var rows Memory
	for i := range 1000 {
		rows = append(rows, Row{Index: i, Source: "d.jsonl"})
	}
	held, err := hold(rows, 0.1, 7)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]bool, 1000)
	for _, i := range choose(newRandom(7, streamSplit), 1000, 100) {
		want[i] = true
	}
	if !slices.Equal(held, want) {
		t.Error("the choice has changed")
	}
}
