package dataset

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// cacheFile makes a data file and a config that caches it.
func cacheFile(t testing.TB) (Config, string) {
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

func mustLoad(t testing.TB, cfg Config, tok Tokenizer) (*Set, *Report) {
	t.Helper()
	set, report, err := Load(context.Background(), cfg, tok)
	if err != nil {
		t.Fatal(err)
	}
	return set, report
}

// entries is the files of a cache, but for its notes: that some were whole, and hashes of data files.
func entries(t testing.TB, cfg Config) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(cfg.CacheDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return filepath.Ext(name) == ".whole" || filepath.Ext(name) == ".hash" })
}

func TestCacheGivesTheSame(t *testing.T) {
	cfg, _ := cacheFile(t)
	first, r1 := mustLoad(t, cfg, bytesTokenizer{})
	second, r2 := mustLoad(t, cfg, bytesTokenizer{})
	if !strings.HasPrefix(r1.CacheNote, "tokens written to ") || !strings.HasPrefix(r2.CacheNote, "tokens read from ") {
		t.Fatalf("notes %q, %q", r1.CacheNote, r2.CacheNote)
	}
	if first.Train.Len() != 3 || !reflect.DeepEqual(all(first.Train), all(second.Train)) {
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

// TestEveryFieldIsInTheKey: a field of Config changes the key, or keyless says why it does not.
func TestEveryFieldIsInTheKey(t *testing.T) {
	cfg := Default()
	key := cacheKey(cfg, "d.jsonl", "data", "tokenizer")
	fields := reflect.TypeFor[Config]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		other := cfg
		f := reflect.ValueOf(&other).Elem().Field(i)
		f = reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem() // unexported ones too
		if !setOther(f) {
			if keyless[name] == "" {
				t.Errorf("%s: teach setOther its kind, %v", name, f.Type())
			}
			continue
		}
		if changes := cacheKey(other, "d.jsonl", "data", "tokenizer") != key; changes == (keyless[name] != "") {
			t.Errorf("%s: it changes the key: %v, keyless says %q; want one of both", name, changes, keyless[name])
		}
	}
	for name := range keyless {
		if _, ok := fields.FieldByName(name); !ok {
			t.Errorf("keyless: Config has no field %s", name)
		}
	}
}

// setOther gives a value that differs from every default; false for a kind that it does not know.
func setOther(f reflect.Value) bool {
	switch f.Kind() {
	case reflect.String:
		f.SetString(f.String() + "other")
	case reflect.Bool:
		f.SetBool(!f.Bool())
	case reflect.Int, reflect.Int64:
		f.SetInt(f.Int() + 1)
	case reflect.Uint64:
		f.SetUint(f.Uint() + 1)
	case reflect.Float64:
		f.SetFloat(f.Float() + 0.25)
	case reflect.Map:
		m := reflect.MakeMap(f.Type())
		key, value := reflect.New(f.Type().Key()).Elem(), reflect.New(f.Type().Elem()).Elem()
		if !setOther(key) || !setOther(value) {
			return false
		}
		m.SetMapIndex(key, value)
		f.Set(m)
	case reflect.Slice:
		element := reflect.New(f.Type().Elem()).Elem()
		if !setOther(element) {
			return false
		}
		f.Set(reflect.Append(f, element))
	case reflect.Struct:
		for i := range f.NumField() {
			if !setOther(f.Field(i)) {
				return false
			}
		}
	default:
		return false
	}
	return true
}

func TestCacheWithoutFiles(t *testing.T) {
	cfg, _ := cacheFile(t)
	_, report := mustLoad(t, cfg, struct{ Tokenizer }{bytesTokenizer{}})
	if report.CacheNote != "off, the tokenizer does not show its files" {
		t.Errorf("note %q", report.CacheNote)
	}
}

// TestCacheDamaged: a flipped bit anywhere, a missing end, or a file that is something else is found before a row is
// read, and the entry is written again as it was.
func TestCacheDamaged(t *testing.T) {
	cfg, _ := cacheFile(t)
	want, first := mustLoad(t, cfg, bytesTokenizer{})
	path := entries(t, cfg)[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, entry []byte) {
		t.Helper()
		if err := os.WriteFile(path, entry, 0o600); err != nil {
			t.Fatal(err)
		}
		got, report := mustLoad(t, cfg, bytesTokenizer{})
		if !strings.Contains(report.CacheNote, "was damaged") || !reflect.DeepEqual(all(got.Train), all(want.Train)) {
			t.Errorf("%s: note %q, rows %v", what, report.CacheNote, all(got.Train))
		}
		report.CacheNote = first.CacheNote
		if !reflect.DeepEqual(report, first) {
			t.Errorf("%s: another report:\n%v\n%v", what, report, first)
		}
		if again, err := os.ReadFile(path); err != nil || string(again) != string(whole) {
			t.Errorf("%s: the entry was not written again (%v)", what, err)
		}
	}
	head, _, err := readHead(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	// Every change is found when the entry is opened; a load then goes on as the few that are tried here.
	damaged := func(what string, entry []byte) {
		t.Helper()
		if err := os.WriteFile(path, entry, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openStore(t.Context(), path, head.Key, cfg.Path, 1, newMeter(nil)); err == nil {
			t.Errorf("%s: it opens", what)
		}
	}
	for at := range whole {
		flipped := slices.Clone(whole)
		flipped[at] ^= 1 << (at % 8)
		damaged(fmt.Sprintf("bit of byte %d", at), flipped)
		damaged(fmt.Sprintf("cut at byte %d", at), whole[:at])
		if at < 16 || at%101 == 0 || at > len(whole)-16 {
			try(fmt.Sprintf("bit of byte %d", at), flipped)
			try(fmt.Sprintf("cut at byte %d", at), whole[:at])
		}
	}
	try("one byte more", append(slices.Clone(whole), 0))
	try("twice", append(slices.Clone(whole), whole...))
	try("zeros", make([]byte, len(whole)))
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
	const version, want = 5, "2664d56d16ee5980"
	if got := hex.EncodeToString(h.Sum(nil))[:16]; got != want || version != cacheVersion {
		t.Errorf("rows of version %d hash to %s, want version %d and %s: raise cacheVersion and write the new numbers here", cacheVersion, got, version, want)
	}
}
