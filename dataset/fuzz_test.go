package dataset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/tierlora/tierlora/dataset/source"
)

// seeds are the broken files and some good ones.
func seeds(f *testing.F) {
	for _, c := range brokenFiles {
		if len(c.content) < 4096 {
			f.Add([]byte(c.content))
		}
	}
	for _, s := range []string{
		`{"instruction":"i","input":"x","output":"o"}`, `{"prompt":"p\ud83d\ude00","completion":"c"}`, `{"text":"t"}`,
		`{"input_ids":[5,6,0],"labels":[-100,6,-100],"attention_mask":[1,1,0]}`,
		`{"prompt":[{"role":"user","content":"a"}],"completion":[{"role":"assistant","content":"b"}],"functions":[{"name":"f"}],"system":"s","":0}`,
		`{"prompt":"[{\"role\":\"user\",\"content\":\"a\"}]","completion":" [{\"role\":\"assistant\",\"content\":\"b\"}]","tools":"[]","id":{ }}`,
		"[\n{\"text\":\"]}\\\"[\"},{\"text\":\"b\"}\n]", "\xef\xbb\xbf {\"text\":\"a\"}\r\n\r\n{\"text\":\"b\"}",
	} {
		f.Add([]byte(s))
	}
}

// FuzzFile: whatever a file holds, loading ends with an error that names the file or with rows that keep the rules.
func FuzzFile(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, content []byte) {
		set, report, err := loadText(t, "d.jsonl", string(content), func(c *Config) { c.MaxLength = 24 })
		if err != nil {
			if !strings.HasPrefix(err.Error(), "d.jsonl") {
				t.Fatalf("the error does not name the file: %v", err)
			}
			return
		}
		if report.Kept+report.DroppedRows() != report.Rows+report.Chunks || report.Kept != set.Train.Len() {
			t.Fatalf("the rows do not add up: %v", report)
		}
		checkLoaded(t, set, 24)
	})
}

// checkLoaded proves that the rows of a set keep the rules, each sequence of at most so many tokens, and so their
// batches.
func checkLoaded(t *testing.T, set *Set, most int) {
	t.Helper()
	for _, r := range all(set.Train) {
		if len(r.IDs) != len(r.Labels) || checkGroup(r.Borders, len(r.IDs)) != nil {
			t.Fatalf("row %+v", r)
		}
		for k := range r.Sequences() {
			ids, labels := r.Sequence(k)
			if len(ids) > most || labels[0] != Ignore || countTrained(labels) == 0 {
				t.Fatalf("sequence %d of row %+v", k, r)
			}
			for i, l := range labels {
				if l != Ignore && l != ids[i] {
					t.Fatalf("label %d of id %d", l, ids[i])
				}
			}
		}
	}
	l, err := set.TrainLoader(3)
	if err != nil {
		t.Fatal(err)
	}
	for b := range l.Epoch(0) {
		checkGroups(t, l, b)
	}
}

// FuzzPreferences: whatever rows of preferences hold, loading them ends with an error that names the file or with rows
// that keep the rules, and every row of the file is kept or dropped.
func FuzzPreferences(f *testing.F) {
	preferenceSeeds(f)
	f.Fuzz(func(t *testing.T, content []byte) {
		set, report, err := loadPreferences(string(content), func(c *Config) { c.MaxLength = 24 })
		if err != nil {
			if !strings.HasPrefix(err.Error(), "d.jsonl") {
				t.Fatalf("the error does not name the file: %v", err)
			}
			return
		}
		if report.Kept+report.DroppedRows() != report.Rows+report.Chunks+report.Chat.SplitRows-report.Chat.Split {
			t.Fatalf("the rows do not add up: %v", report)
		}
		checkLoaded(t, set, 24)
	})
}

// preferenceSeeds adds rows of pairs and of labelled answers.
func preferenceSeeds(f *testing.F) {
	seeds(f)
	const talk = `[{"role":"user","content":"q"},{"role":"assistant","content":"%s"}]`
	for _, s := range []string{
		`{"prompt":"q","chosen":"a","rejected":"b"}`, `{"chosen":"q a ","rejected":"q b"}`, `{"chosen":"é","rejected":"è"}`,
		`{"chosen":"\n\nHuman: q\n\nAssistant: a","rejected":"\n\nHuman: q\n\nAssistant: b"}`,
		fmt.Sprintf(`{"chosen":`+talk+`,"rejected":`+talk+`,"system":"s","tools":[]}`, "a", "b"),
		fmt.Sprintf(`{"input":{"messages":`+talk+`},"preferred_output":`+talk+`,"non_preferred_output":[]}`, "a", "b"),
		`{"conversations":[{"from":"human","value":"q"}],"chosen":{"from":"gpt","value":"a"},` +
			`"rejected":{"from":"gpt","value":"b"}}`,
		`{"prompt":"q","completion":"a","label":true}`, fmt.Sprintf(`{"messages":`+talk+`,"kto_tag":"false"}`, "a"),
		`{"chosen_input_ids":[5,6],"chosen_labels":[-100,6],"rejected_input_ids":[5,7],"rejected_labels":[-100,7]}`,
		`{"input_ids":[5,6],"labels":[-100,6],"label":0}`, `{"prompt":"q","history":[["a","b"]],"chosen":["x"],"rejected":{}}`,
	} {
		f.Add([]byte(s))
	}
}

// FuzzLabelled checks that any file is read as labelled answers with mismatched sequences or refused, and that both
// sequences of a row begin with its prompt and have at most max_length tokens.
func FuzzLabelled(f *testing.F) {
	preferenceSeeds(f)
	f.Fuzz(func(t *testing.T, content []byte) {
		set, report, err := loadPreferences(string(content), func(c *Config) {
			c.MaxLength, c.Unpaired, c.Mismatched = 24, true, 3
		})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "d.jsonl") {
				t.Fatalf("the error does not name the file: %v", err)
			}
			return
		}
		if report.Kept != set.Train.Len() {
			t.Fatalf("the rows do not add up: %v", report)
		}
		checkLoaded(t, set, 24)
		for _, r := range all(set.Train) {
			if r.Desirable == Unlabelled || r.Sequences() == 1 {
				return // an objective refuses rows without a label
			}
			own, labels := r.Sequence(0)
			other, _ := r.Sequence(1)
			if n := maskedPrefix(labels); n >= len(own) || n >= len(other) || !slices.Equal(own[:n], other[:n]) {
				t.Fatalf("the sequences %v and %v have no common prompt of %d tokens", own, other, n)
			}
		}
	})
}

// FuzzObject compares the row parser with encoding/json: what it takes is an object with the same keys and values.
func FuzzObject(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := parseObject(data)
		var want map[string]json.RawMessage
		if jsonErr := json.Unmarshal(data, &want); err == nil && (jsonErr != nil || len(want) != len(o.keys)) {
			t.Fatalf("took %q as %v, encoding/json: %v", data, o.keys, jsonErr)
		}
		if err != nil {
			return
		}
		fields := Fields{row: o, keys: map[string]string{}}
		for i, key := range o.keys {
			if !bytes.Equal(want[key], o.values[i]) {
				t.Fatalf("key %q: %q, want %q", key, o.values[i], want[key])
			}
			fields.keys["x"] = key
			if s, err := fields.Text("x"); err == nil && fields.Present("x") {
				var plain string
				if json.Unmarshal(want[key], &plain) != nil || plain != s || !utf8.ValidString(s) {
					t.Fatalf("key %q: text %q of %q", key, s, want[key])
				}
			}
			fields.Ints("x")
		}
	})
}

// FuzzAsChat: whatever prompt, answer and system message hold, a row with as_chat is the row of the same messages.
func FuzzAsChat(f *testing.F) {
	f.Add("hi", "ho", "")
	f.Add("", " \n", "</s>")
	f.Add("<think>a", "b</think>c</s><s>", "\u2028 {{ x }}")
	f.Fuzz(func(t *testing.T, prompt, answer, system string) {
		if answer == "" || strings.TrimSpace(system) == "" && system != "" {
			return // such a row is dropped; a blank system message is none
		}
		type message struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		}
		messages := []message{{"user", prompt}, {"assistant", answer}}
		if system != "" {
			messages = append([]message{{"system", system}}, messages...)
		}
		row, err := json.Marshal(map[string]string{"prompt": prompt, "completion": answer, "system": system})
		talk, err2 := json.Marshal(map[string][]message{"messages": messages})
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		got, _, err := withTemplate(t, string(row), plainTemplate, func(c *Config) { c.AsChat = AsChatYes })
		want, _, err2 := withTemplate(t, string(talk), plainTemplate, nil)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%s: %v; %s: %v", row, err, talk, err2)
		}
		if err == nil && !reflect.DeepEqual(all(got.Train), all(want.Train)) {
			t.Fatalf("%s: %v, want %v", row, all(got.Train), all(want.Train))
		}
	})
}

// FuzzTalks: whatever a file of conversations holds, loading ends with an error or with rows whose report adds up and
// whose prompt, where a row names one, is not trained.
func FuzzTalks(f *testing.F) {
	seeds(f)
	f.Add([]byte(goodTalk))
	f.Fuzz(func(t *testing.T, content []byte) {
		set, report, err := withTemplate(t, string(content), plainTemplate, nil)
		if err != nil {
			return
		}
		for _, u := range report.Unread {
			if len(u.Key) > maxUnreadKey+len("…") || u.Rows < 1 || u.Rows > report.Rows {
				t.Fatalf("%q in %d of %d rows", u.Key, u.Rows, report.Rows)
			}
		}
		if len(report.Unread) > maxUnread || !utf8.ValidString(report.KeysNotRead()) || strings.ContainsFunc(report.KeysNotRead(), unicode.IsControl) {
			t.Fatalf("keys not read: %q", report.KeysNotRead())
		}
		for _, r := range all(set.Train) {
			if r.Trained() == 0 || r.Labels[0] != Ignore {
				t.Fatalf("row %+v", r)
			}
		}
	})
}

// FuzzList compares the reader of lists with encoding/json.
func FuzzList(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		in := source.NewReader(bytes.NewReader(data), source.Options{Limit: 1 << 20})
		var got [][]byte
		var failed error
		for {
			row, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				failed = err
				var skip *source.RowError
				if errors.As(err, &skip) {
					continue
				}
				break
			}
			got = append(got, bytes.Clone(row.Data))
		}
		var want []json.RawMessage
		if json.Unmarshal(data, &want) != nil || want == nil {
			return
		}
		if failed != nil || len(got) != len(want) {
			t.Fatalf("%d elements (%v), want %d", len(got), failed, len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("element %d: %q, want %q", i, got[i], want[i])
			}
		}
	})
}

// wholeCache is a cache file, and its head.
func wholeCache(f *testing.F) ([]byte, storeHead) {
	f.Helper()
	cfg, _ := cacheFile(f)
	mustLoad(f, cfg, bytesTokenizer{})
	whole, err := os.ReadFile(tokensOf(f, cfg))
	if err != nil {
		f.Fatal(err)
	}
	head, _, err := readHead(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		f.Fatal(err)
	}
	return whole, head
}

// FuzzCacheFile: whatever a cache file holds behind right checksums, it is refused or gives rows that keep the rules.
func FuzzCacheFile(f *testing.F) {
	whole, head := wholeCache(f)
	body := whole[len(cacheMagic):head.size()]
	f.Add(body, head.Rows, head.Tokens)
	f.Add([]byte{}, uint64(0), uint64(0))
	f.Add(body, head.Rows+1, head.Tokens-9)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, body []byte, rows, tokens uint64) {
		h := head
		h.Rows, h.Tokens, h.Report.Kept = rows, tokens, int(rows)
		var file bytes.Buffer
		p := pageSums{w: &file}
		p.Write([]byte(cacheMagic)) //nolint:errcheck // a buffer
		p.Write(body)               //nolint:errcheck // a buffer
		p.flush()
		if err := writeHead(&file, h, p.sums); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "f.tokens")
		if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := openStore(context.Background(), path, h.Key, "made", 2, newMeter(nil))
		if err != nil {
			return
		}
		for i, r := range all(s) {
			if len(r.IDs) == 0 || len(r.IDs) != len(r.Labels) || s.Trained(i) > s.Length(i) || s.Length(i) != len(r.IDs) {
				t.Fatalf("row %+v", r)
			}
		}
	})
}

// FuzzCacheBytes: any bytes in the place of a cache file are refused or are the file.
func FuzzCacheBytes(f *testing.F) {
	whole, head := wholeCache(f)
	f.Add(whole)
	f.Add([]byte(cacheMagic))
	path := filepath.Join(f.TempDir(), "f.tokens")
	f.Fuzz(func(t *testing.T, file []byte) {
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openStore(context.Background(), path, head.Key, "made", 2, newMeter(nil)); err == nil && !bytes.Equal(file, whole) {
			t.Fatal("another file was taken")
		}
	})
}
