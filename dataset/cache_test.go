package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// cacheFile makes a data file and a config that caches it.
func cacheFile(t *testing.T) (Config, string) {
	t.Helper()
	dir := t.TempDir()
	cfg := Default()
	cfg.Path, cfg.CacheDir, cfg.MaxLength = filepath.Join(dir, "data.jsonl"), filepath.Join(dir, "a", "cache"), 8
	cfg.OnTruncated = TruncatedKeep
	rows := "{\"text\":\"one\"}\n{\"text\":\"\"}\n{\"text\":\"longer than eight\"}\n{\"text\":\"é\"}\n"
	if err := os.WriteFile(cfg.Path, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	return cfg, dir
}

func mustLoad(t *testing.T, cfg Config, tok Tokenizer) (*Set, *Report) {
	t.Helper()
	set, report, err := Load(context.Background(), cfg, tok)
	if err != nil {
		t.Fatal(err)
	}
	return set, report
}

func entries(t *testing.T, cfg Config) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(cfg.CacheDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestCacheGivesTheSame(t *testing.T) {
	cfg, _ := cacheFile(t)
	first, r1 := mustLoad(t, cfg, bytesTokenizer{})
	second, r2 := mustLoad(t, cfg, bytesTokenizer{})
	if !strings.HasPrefix(r1.CacheNote, "tokens written to ") || !strings.HasPrefix(r2.CacheNote, "tokens read from ") {
		t.Fatalf("notes %q, %q", r1.CacheNote, r2.CacheNote)
	}
	if first.Train.Len() != 3 || !reflect.DeepEqual(first.Train, second.Train) {
		t.Errorf("rows differ:\n%v\n%v", first.Train, second.Train)
	}
	r1.CacheNote, r2.CacheNote = "", ""
	if r1.String() != r2.String() || !reflect.DeepEqual(r1, r2) {
		t.Errorf("reports differ:\n%v\n%v", r1, r2)
	}
	if n := len(entries(t, cfg)); n != 1 {
		t.Errorf("%d files in the cache, want 1", n)
	}
}

func TestCacheKey(t *testing.T) {
	cfg, _ := cacheFile(t)
	mustLoad(t, cfg, bytesTokenizer{})
	for name, change := range map[string]func(*Config, *bytesTokenizer){
		"max_length":   func(c *Config, _ *bytesTokenizer) { c.MaxLength = 9 },
		"format":       func(c *Config, _ *bytesTokenizer) { c.Format = "text" },
		"on_truncated": func(c *Config, _ *bytesTokenizer) { c.OnTruncated = TruncatedDrop },
		"fields":       func(c *Config, _ *bytesTokenizer) { c.Fields = map[string]string{"text": "text"} },
		"tokenizer":    func(_ *Config, b *bytesTokenizer) { b.print = "2" },
		"data": func(c *Config, _ *bytesTokenizer) {
			if err := os.WriteFile(c.Path, []byte("{\"text\":\"new\"}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		c, tok := cfg, bytesTokenizer{}
		change(&c, &tok)
		if _, report := mustLoad(t, c, tok); !strings.HasPrefix(report.CacheNote, "tokens written to ") {
			t.Errorf("%s: %s", name, report.CacheNote)
		}
	}
}

func TestCacheWithoutFiles(t *testing.T) {
	cfg, _ := cacheFile(t)
	_, report := mustLoad(t, cfg, struct{ Tokenizer }{bytesTokenizer{}})
	if report.CacheNote != "off, the tokenizer does not show its files" {
		t.Errorf("note %q", report.CacheNote)
	}
}

func TestCacheDamaged(t *testing.T) {
	cfg, _ := cacheFile(t)
	want, _ := mustLoad(t, cfg, bytesTokenizer{})
	path := entries(t, cfg)[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(body []byte) []byte {
		sum := sha256.Sum256(body)
		return append(append([]byte(nil), body...), sum[:]...)
	}
	body := whole[:len(whole)-sha256.Size]
	flipped := append([]byte(nil), whole...)
	flipped[len(flipped)/2] ^= 1
	for name, entry := range map[string][]byte{
		"empty": {}, "half": whole[:len(whole)/2], "one byte short": whole[:len(whole)-1], "one byte more": append(whole[:len(whole):len(whole)], 0),
		"flipped bit": flipped, "signed, no rows": signed([]byte(cacheMagic)), "signed, a row missing": signed(body[:len(body)-4*3-12]),
		"signed, half a row": signed(body[:len(body)-4]),
	} {
		if err := os.WriteFile(path, entry, 0o600); err != nil {
			t.Fatal(err)
		}
		got, report := mustLoad(t, cfg, bytesTokenizer{})
		if !strings.Contains(report.CacheNote, "was damaged") || !reflect.DeepEqual(got.Train, want.Train) {
			t.Errorf("%s: note %q, rows %v", name, report.CacheNote, got.Train)
		}
		if again, err := os.ReadFile(path); err != nil || string(again) != string(whole) {
			t.Errorf("%s: the entry was not written again (%v)", name, err)
		}
	}
}

func TestCacheCannotBeWritten(t *testing.T) {
	cfg, dir := cacheFile(t)
	cfg.CacheDir = filepath.Join(dir, "file", "cache")
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	set, report := mustLoad(t, cfg, bytesTokenizer{})
	if set.Train.Len() != 3 || !strings.HasPrefix(report.CacheNote, "not written: ") {
		t.Errorf("%d rows, note %q", set.Train.Len(), report.CacheNote)
	}
}

// TestCacheVersion fails when the formats make other rows than they did: then cacheVersion must rise, or old entries
// would serve the old rows.
func TestCacheVersion(t *testing.T) {
	h := sha256.New()
	for _, file := range []string{
		`{"instruction":"i","output":"o"}`, `{"instruction":"i","input":"x","output":"o"}`,
		`{"prompt":"p","completion":"c"}`, `{"text":"t"}`, `{"input_ids":[5,6],"labels":[-100,6]}`,
	} {
		set, report, err := loadText(t, "d.jsonl", file, nil)
		if err != nil {
			t.Fatal(err)
		}
		h.Write([]byte(digest(set.Train)))
		h.Write([]byte(report.String()))
	}
	const version, want = 1, "4ac0c53978e27afc"
	if got := hex.EncodeToString(h.Sum(nil))[:16]; got != want || version != cacheVersion {
		t.Errorf("rows of version %d hash to %s, want version %d and %s: raise cacheVersion and write the new numbers here", cacheVersion, got, version, want)
	}
}
