package logprobs

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/model/weights"
)

// digits is a tokenizer whose tokens are numbers.
type digits struct{ size int }

func (digits) IDs(string, bool) []int32    { return nil }
func (digits) BOS() (int32, bool)          { return 0, false }
func (digits) EOS() (int32, bool)          { return 0, false }
func (digits) PAD() (int32, bool)          { return 0, false }
func (digits) AddsBOS() bool               { return false }
func (digits) Decode([]int32, bool) string { return "" }
func (d digits) Token(id int32) (string, bool) {
	return fmt.Sprint(id), int(id) < d.size
}

const vocabulary = 50

// rowsOf returns n rows of rising length, in which every second token is trained.
func rowsOf(n int) (rows dataset.Memory) {
	for i := range n {
		r := dataset.Row{Index: i, Line: i + 1, Source: "rows.jsonl"}
		for t := range i%5 + 2 {
			id := int32((7*i + t) % vocabulary)
			r.IDs, r.Labels = append(r.IDs, id), append(r.Labels, id)
			if t%2 == 0 {
				r.Labels[t] = dataset.Ignore
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// said returns what a teacher says of a row: falling log-probabilities, of other tokens for every row and place.
func said(r dataset.Row, k int) Row {
	out := Row{Key: Key(r.IDs, r.Labels), Tokens: Trained(r.Labels)}
	for t := range out.Tokens {
		rest := 1.
		for i := range k {
			p := rest * 0.5
			rest -= p
			out.IDs = append(out.IDs, int32((r.Index+3*t+i)%vocabulary))
			out.Logprobs = append(out.Logprobs, float32(math.Log(p)))
		}
		out.Rest = append(out.Rest, float32(math.Log(rest)))
	}
	return out
}

func subjectOf(rows dataset.Memory, k int) Subject {
	s := Subject{Teacher: "teacher", Tokenizer: Vocabulary(digits{vocabulary}, vocabulary), Vocabulary: vocabulary,
		TopK:        k,
		Temperature: 1, Rows: len(rows), Data: "rows"}
	for _, r := range rows {
		s.Tokens += int64(Trained(r.Labels))
	}
	return s
}

// written writes rows in shards of three.
func written(t testing.TB, dir string, rows dataset.Memory, k int) {
	t.Helper()
	w, err := NewWriter(dir, subjectOf(rows, k))
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(rows, 3) {
		var keys []uint64
		var all []Row
		for _, r := range part {
			all = append(all, said(r, k))
			keys = append(keys, all[len(all)-1].Key)
		}
		found, err := w.Has(keys)
		if err == nil && !found {
			err = w.Write(all)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
}

// TestFolder reads what was written: rows in any order, fewer tokens, and the probability of those that are left out.
func TestFolder(t *testing.T) {
	rows, dir := rowsOf(10), filepath.Join(t.TempDir(), "teacher")
	written(t, dir, rows, 4)
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Verify(t.Context(), vocabulary); err != nil {
		t.Fatal(err)
	}
	set := &dataset.Set{Train: rows[4:], Val: rows[:4]}
	if err := f.Check(set, digits{vocabulary}, vocabulary); err != nil {
		t.Fatal(err)
	}
	for _, k := range []int{4, 2} {
		for _, r := range slices.Backward(rows) {
			want, at := said(r, 4), 0
			ok := f.Tokens(r.IDs, r.Labels, k, func(ids []int32, logps []float32) {
				rest := math.Exp(float64(want.Rest[at]))
				for i := range 4 {
					l := want.Logprobs[4*at+i]
					if i >= k {
						rest += math.Exp(float64(l))
					} else if ids[i] != want.IDs[4*at+i] || logps[i] != l {
						t.Errorf("row %d, place %d: token %d with %v, want %d with %v", r.Index, at, ids[i], logps[i],
							want.IDs[4*at+i], l)
					}
				}
				if len(ids) != k || math.Abs(float64(logps[k])-math.Log(rest)) > 1e-6 {
					t.Errorf("row %d, place %d: %d tokens, the others %v, want %v", r.Index, at, len(ids), logps[k],
						math.Log(rest))
				}
				at++
			})
			if !ok || at != want.Tokens {
				t.Errorf("row %d: %d places, want %d", r.Index, at, want.Tokens)
			}
		}
	}
	if f.Tokens([]int32{1, 2}, []int32{-100, 3}, 4, nil) {
		t.Error("a row that is not there is found")
	}
}

// TestContinued writes the rest of a folder without an index to the same bytes, and refuses another subject's.
func TestContinued(t *testing.T) {
	rows, dir, parts := rowsOf(10), filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	written(t, dir, rows, 4)
	written(t, parts, rows, 4)
	for _, name := range []string{IndexFile, shardName(2), shardName(3)} {
		if err := os.Remove(filepath.Join(parts, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(parts); err == nil || !strings.Contains(err.Error(), "is not complete: run trainer logprobs "+
		"again") {
		t.Errorf("a folder without an index: %v", err)
	}
	written(t, parts, rows, 4)
	for i := range 4 {
		for _, name := range []string{shardName(i), IndexFile} {
			a, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(parts, name))
			if err != nil || !bytes.Equal(a, b) {
				t.Errorf("%s is another: %v", name, err)
			}
		}
	}
	other := subjectOf(rows, 4)
	other.Adapter = "another"
	if _, err := NewWriter(dir, other); err == nil || !strings.Contains(err.Error(), "(its adapter: , now another)") {
		t.Errorf("a complete folder of another subject: %v", err)
	}
	os.Remove(filepath.Join(dir, IndexFile)) //nolint:errcheck // the next line tells
	w, err := NewWriter(dir, other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Has([]uint64{1, 2, 3}); err == nil || !strings.Contains(err.Error(),
		"was made from something else") {
		t.Errorf("a shard of another subject: %v", err)
	}
}

// edit changes a file of a folder.
func edit(t *testing.T, dir, name string, change func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(data), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// replaced replaces a text of the index.
func replaced(old, new string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		edit(t, dir, IndexFile, func(b []byte) []byte {
			if !bytes.Contains(b, []byte(old)) {
				t.Fatalf("the index has no %s", old)
			}
			return bytes.Replace(b, []byte(old), []byte(new), 1)
		})
	}
}

// rewritten writes a shard again with other values.
func rewritten(shard int, change func(all []Row)) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		rows := rowsOf(10)
		w := &Writer{dir: dir, subject: subjectOf(rows, 4), shards: make([]shardInfo, shard)}
		var all []Row
		for _, r := range rows[3*shard:][:3] {
			all = append(all, said(r, 4))
		}
		change(all)
		if err := w.Write(all); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBroken checks the message of each kind of damage.
func TestBroken(t *testing.T) {
	nan := float32(math.NaN())
	for what, c := range map[string]struct {
		change func(t *testing.T, dir string)
		want   string
	}{
		"no folder": {func(t *testing.T, dir string) { os.RemoveAll(dir) }, "no such file or directory: trainer " +
			"logprobs writes such a folder"},
		"a file in its place": {func(t *testing.T, dir string) {
			os.RemoveAll(dir)
			if err := os.WriteFile(dir, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}, "DIR is a file, want the folder that trainer logprobs wrote"},
		"an empty folder": {func(t *testing.T, dir string) {
			os.RemoveAll(dir)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}, "DIR has no logprobs.json: want the folder that trainer logprobs wrote"},
		"no JSON": {func(t *testing.T, dir string) {
			edit(t, dir, IndexFile,
				func([]byte) []byte { return []byte("{") })
		}, "logprobs.json: "},
		"another format": {replaced(`"format": 1`, `"format": 2`), "its format is 2, this program reads 1"},
		"no tokens":      {replaced(`"top_k": 4`, `"top_k": 0`), "top_k is 0, want 1 to 512"},
		"other top-k":    {replaced(`"top_k": 4`, `"top_k": 5`), "logprobs [4 4] and rest [4], with top_k 5"},
		"small vocab":    {replaced(`"vocabulary": 50`, `"vocabulary": 4`), "vocabulary is 4, with top_k 4"},
		"no temperature": {replaced(`"temperature": 1`, `"temperature": 0`), "temperature is 0, want a number " +
			"above 0"},
		"other rows": {replaced(`"rows": 10`, `"rows": 11`), "its shards have 10 rows and 18 tokens, it says " +
			"11 and 18"},
		"another file": {replaced(`logprobs-00002`, `../logprobs-00002`),
			`shard 2 is "../logprobs-00002.safetensors" with 3 rows`},
		"a missing shard": {func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, shardName(1))) },
			"logprobs-00002.safetensors: no such file"},
		"a shard cut short": {func(t *testing.T, dir string) {
			edit(t, dir, shardName(1), func(b []byte) []byte { return b[:len(b)-8] })
		}, "logprobs-00002.safetensors: "},
		"an empty shard": {func(t *testing.T, dir string) {
			edit(t, dir, shardName(1),
				func([]byte) []byte { return nil })
		}, "logprobs-00002.safetensors: "},
		"another hash": {replaced(`"sha256": "`, `"sha256": "0`), "the SHA-256 of logprobs-00001.safetensors " +
			"is "},
		"weights of a model": {func(t *testing.T, dir string) { writeModel(t, filepath.Join(dir, shardName(0))) },
			"logprobs-00001.safetensors: it has no tensor rows of 1 dimensions and type I64"},
		"not a number": {rewritten(0, func(all []Row) { all[1].Logprobs[2] = nan }),
			"logprobs-00001.safetensors: place 2: the log-probability NaN of token id 3 is not a number of 0 or less"},
		"minus infinity": {rewritten(0, func(all []Row) { all[0].Logprobs[3] = float32(math.Inf(-1)) }),
			"place 1: the log-probability -Inf of token id 3"},
		"above zero": {rewritten(0, func(all []Row) { all[0].Logprobs[0] = 0.5 }),
			"place 1: the log-probability 0.5 of token id 0"},
		"not falling": {rewritten(0, func(all []Row) { all[0].Logprobs[1] = -0.1 }),
			"the log-probability -0.10000000149011612 follows the smaller -0.6931471824645996"},
		"the others NaN": {rewritten(1, func(all []Row) { all[0].Rest[0] = nan }), "logprobs-00002.safetensors: " +
			"place 1: the log-probability NaN of the other tokens"},
		"an unknown token": {rewritten(0, func(all []Row) { all[0].IDs[1] = vocabulary }),
			"place 1: token id 50, the base model's vocabulary has 0 to 49"},
		"a negative token": {rewritten(0, func(all []Row) { all[0].IDs[1] = -1 }), "place 1: token id -1, the " +
			"base model's vocabulary has 0 to 49"},
		"a token twice": {rewritten(0, func(all []Row) { all[0].IDs[1] = all[0].IDs[0] }),
			"place 1: token id 0 is there twice"},
		"another row": {rewritten(0, func(all []Row) { all[0].Key++ }), "made from other rows: it lacks 1 of " +
			"10, the first is rows.jsonl:1; write it again"},
	} {
		t.Run(what, func(t *testing.T) {
			rows, dir := rowsOf(10), filepath.Join(t.TempDir(), "teacher")
			written(t, dir, rows, 4)
			c.change(t, dir)
			f, err := Open(dir)
			if err == nil {
				defer f.Close()
				if err = f.Check(&dataset.Set{Train: rows, Val: dataset.Memory{}}, digits{vocabulary},
					vocabulary); err == nil {
					err = f.Verify(t.Context(), vocabulary)
				}
			}
			if want := strings.ReplaceAll(c.want, "DIR", dir); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
	t.Run("another tokenizer", func(t *testing.T) {
		rows, dir := rowsOf(10), filepath.Join(t.TempDir(), "teacher")
		written(t, dir, rows, 4)
		f, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		err = f.Check(&dataset.Set{Train: rows, Val: dataset.Memory{}}, digits{vocabulary - 1}, vocabulary)
		if err == nil || !strings.Contains(err.Error(), "was made with another tokenizer: the hash of its "+
			"vocabulary is ") {
			t.Error(err)
		}
	})
}

// writeModel writes a SafeTensors file of something else.
func writeModel(t *testing.T, path string) {
	t.Helper()
	data, err := weights.Encode([]weights.Tensor{{Name: "w", DType: weights.F32, Shape: []int{1}, Data: make([]byte,
		4)}}, nil)
	if err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzFolder opens a folder with any index and any shard: it never panics, and what opens can be read.
func FuzzFolder(f *testing.F) {
	rows, dir := rowsOf(3), filepath.Join(f.TempDir(), "teacher")
	written(f, dir, rows, 4)
	index, err := os.ReadFile(filepath.Join(dir, IndexFile))
	if err != nil {
		f.Fatal(err)
	}
	shard, err := os.ReadFile(filepath.Join(dir, shardName(0)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(index, shard)
	f.Add([]byte("{}"), shard)
	f.Add(index, shard[:len(shard)/2])
	f.Add(bytes.ReplaceAll(index, []byte("4"), []byte("9")), shard)
	f.Fuzz(func(t *testing.T, index, shard []byte) {
		dir := t.TempDir()
		for name, data := range map[string][]byte{IndexFile: index, shardName(0): shard} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		folder, err := Open(dir)
		if err != nil {
			return
		}
		defer folder.Close()
		_ = folder.Verify(t.Context(), vocabulary)
		_ = folder.Check(&dataset.Set{Train: rows, Val: dataset.Memory{}}, digits{vocabulary}, vocabulary)
		for _, r := range rows {
			folder.Tokens(r.IDs, r.Labels, 1, func([]int32, []float32) {})
		}
	})
}
