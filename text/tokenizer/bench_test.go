package tokenizer

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// mixedText is about 1 MB of stories, questions, tables and code-like rows from the shared data.
func mixedText(t testing.TB) string {
	t.Helper()
	dir := shared(t)
	var b strings.Builder
	for _, name := range []string{
		"tinystories/tinystories_sample.txt", "gsm8k/train.jsonl", "fastchat/dummy_conversation.json", "mlx-wikisql/train.jsonl",
		"tinyshakespeare/input.txt", "llamafactory/v1_sft_demo.jsonl",
	} {
		text, err := os.ReadFile(filepath.Join(dir, "data/datasets", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(strings.ToValidUTF8(string(text[:min(len(text), 180_000)]), ""))
	}
	return b.String()
}

// BenchmarkIDs is the rate on mixed text with a warm word cache.
func BenchmarkIDs(b *testing.B) {
	text := mixedText(b)
	for _, name := range []string{"tinyllama", "mistral-v0.3", "smollm", "qwen2.5", "stories260K"} {
		tok, err := Load(filepath.Join(shared(b), sharedFolders[name]))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.IDs(text, false)
			}
		})
	}
}

// BenchmarkLoad is the time to read a tokenizer.
func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"tinyllama", "smollm", "qwen2.5"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Load(filepath.Join(shared(b), sharedFolders[name])); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestNoSpaces: a megabyte that is one word ends in time that grows hardly faster than its length.
func TestNoSpaces(t *testing.T) {
	for _, name := range []string{"stories260K", "smollm"} {
		tok := embedded(t, name)
		for _, unit := range []string{"a", "abcdefghij", "thethethethe", "é漢字"} {
			text := strings.Repeat(unit, 1_000_000/len(unit))
			begin := time.Now()
			ids := tok.IDs(text, false)
			took := time.Since(begin)
			t.Logf("%s, %q: %d bytes, %d ids, %v", name, unit, len(text), len(ids), took.Round(time.Millisecond))
			// far above what is expected even on a busy machine, far below what a quadratic merge would take.
			if took > 20*time.Second {
				t.Errorf("%s, %q: %v", name, unit, took)
			}
			if got := tok.Decode(ids, false); got != text && name == "stories260K" {
				t.Errorf("%s, %q: decoding does not give the text back", name, unit)
			}
		}
	}
}

// TestBenchAgainstReference is the Go side of scripts/bench/tokenizer.sh: it checks the ids of the whole text and
// prints seconds as JSON.
func TestBenchAgainstReference(t *testing.T) {
	dir := os.Getenv("TRAINER_BENCH")
	if dir == "" {
		t.Skip("TRAINER_BENCH is not set: scripts/bench/tokenizer.sh makes its folder")
	}
	raw, err := os.ReadFile(filepath.Join(dir, "text"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	documents := strings.SplitAfter(text, "\n")
	timed := func(f func()) float64 {
		begin := time.Now()
		f()
		return time.Since(begin).Seconds()
	}
	seconds := map[string]map[string]float64{}
	for _, style := range []string{"llama", "mistral", "gpt2", "qwen2", "llama3"} {
		tok, err := Load(filepath.Join(dir, style))
		if err != nil {
			t.Fatal(err)
		}
		var ids []int32
		s := map[string]float64{"cold": timed(func() { ids = tok.IDs(text, false) }), "warm": math.Inf(1), "documents": math.Inf(1)}
		for range 3 {
			s["warm"] = min(s["warm"], timed(func() { tok.IDs(text, false) }))
			s["documents"] = min(s["documents"], timed(func() {
				for _, d := range documents {
					tok.IDs(d, false)
				}
			}))
		}
		seconds[style] = s
		raw, err := os.ReadFile(filepath.Join(dir, style+".ids"))
		if err != nil {
			t.Fatal(err)
		}
		want := make([]int32, len(raw)/4)
		for i := range want {
			want[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%s: %d ids differ from the %d of the reference", style, len(ids), len(want))
		}
	}
	out, err := json.Marshal(seconds)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(out))
}
