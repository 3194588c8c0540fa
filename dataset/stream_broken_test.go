package dataset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStreamRefusals: what cannot be streamed is refused by name, with the reason.
func TestStreamRefusals(t *testing.T) {
	dir := t.TempDir()
	a := writeFile(t, dir, "a.jsonl", streamLines(0, 30))
	writeFile(t, dir, "b.jsonl", streamLines(30, 30))
	empty := writeFile(t, t.TempDir(), "empty.jsonl", "")
	dropped := writeFile(t, t.TempDir(), "dropped.jsonl", strings.Repeat("{\"text\": \"\"}\n", 3))
	bad := writeFile(t, t.TempDir(), "bad.jsonl", streamLines(0, 3)+"{\"text\": 5}\n")
	pairs := writeFile(t, t.TempDir(), "pairs.jsonl", `{"prompt":"p","chosen":"a","rejected":"b"}`+"\n")
	long := writeFile(t, t.TempDir(), "long.jsonl", `{"prompt":"p","completion":"`+strings.Repeat("a", 100)+"\"}\n")
	of := func(path, split string, weight float64) func(*Config) {
		return func(c *Config) { c.Path, c.Sources = "", []Source{{Path: path, Split: split, Weight: weight}} }
	}
	for _, c := range []struct {
		edit func(*Config)
		want string
	}{
		{func(c *Config) { c.ValSplit = 0.1 }, "dataset.val_split: with dataset.streaming the rows are not counted before they are trained on, so no part of them can be held out: " +
			"name validation rows in dataset.val_path or dataset.val_sources"},
		{func(c *Config) { c.CacheDir = dir }, "dataset.cache_dir: with dataset.streaming nothing is written to disk: remove one of them"},
		{of(a, "", 1.5), "dataset.sources[0].weight: 1.5 of the rows cannot be taken with dataset.streaming, which does not know how many there are: write a whole number, " +
			"or a split such as train[:1000]"},
		{of(a, "train[:5%]", 1), "read data: " + a + ": train[:5%] counts in percent or from the end, and dataset.streaming does not know how many rows the files have: " +
			"write rows from the start, such as train[:1000], or give Parquet files, which say how many they have"},
		{of(a, "train[-5:]", 1), "read data: " + a + ": train[-5:] counts in percent or from the end, and dataset.streaming does not know how many rows the files have: " +
			"write rows from the start, such as train[:1000], or give Parquet files, which say how many they have"},
		{of(a, "train[5:5]", 1), "read data: " + a + ": train[5:5] has no row"},
		{of(a, "train[100:]", 1), a + ": the file holds no row"},
		{of(dir, "train[30:40]", 1), ""},
		{func(c *Config) { c.Path = empty }, empty + ": the file holds no row"},
		{func(c *Config) { c.Path = dropped }, dropped + ": no row is left to train on, all 3 were dropped: 3 because the text is empty (" + dropped + ":1, " + dropped + ":2, " + dropped + ":3)"},
		{func(c *Config) { c.Path = bad }, bad + ":4: field \"text\" is a number, want a string"},
		{func(c *Config) { c.Path = filepath.Join(dir, "none.jsonl") }, "read data: stat " + filepath.Join(dir, "none.jsonl") + ": no such file or directory"},
		{func(c *Config) { c.Path = pairs }, ""},
		{func(c *Config) { c.Path, c.OnTruncated, c.MaxLength = long, TruncatedError, 20 }, long + ":1: the row has 104 tokens, more than max_length 20 (on_truncated is error)"},
	} {
		cfg := Default()
		cfg.Path, cfg.Streaming = a, true
		c.edit(&cfg)
		_, _, err := Load(context.Background(), cfg, bytesTokenizer{})
		if got := errText(err); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// whereAll is the places of an epoch's rows.
func whereAll(t *testing.T, l *Loader) (all []string) {
	t.Helper()
	for last := false; !last; {
		b := mustNext(t, l, 1)[0]
		all, last = append(all, b.Where()...), b.Last
	}
	return all
}

// TestStreamedSources: whole weights take a source several times, slices are found by reading, formats are the sources' own.
func TestStreamedSources(t *testing.T) {
	dir := t.TempDir()
	a := writeFile(t, dir, "a.jsonl", streamLines(0, 4))
	b := writeFile(t, dir, "b.jsonl", streamLines(4, 3))
	c := writeFile(t, t.TempDir(), "c.csv", "q,a\none,1\ntwo,2\nthree,3\n")
	parquet := "source/testdata/chat_gzip_v1.parquet"
	for _, test := range []struct {
		sources []Source
		want    string
	}{
		{[]Source{{Path: dir, Weight: 1}}, "a1 a2 a3 a4 b1 b2 b3"},
		{[]Source{{Path: a, Weight: 2}, {Path: b, Weight: 1}}, "a1 a2 a3 a4 a1 a2 a3 a4 b1 b2 b3"},
		{[]Source{{Path: dir, Split: "train[3:6]", Weight: 1}}, "a4 b1 b2"},
		{[]Source{{Path: dir, Split: "train[4:]", Weight: 1}}, "b1 b2 b3"},
		{[]Source{{Path: dir, Split: "train[2:]", Weight: 1}}, "a3 a4 b1 b2 b3"},
		{[]Source{{Path: dir, Split: "train[0:]", Weight: 1}}, "a1 a2 a3 a4 b1 b2 b3"},
		{[]Source{{Path: dir, Split: "train[:2]", Weight: 1}}, "a1 a2"},
		{[]Source{{Path: dir, Split: "train[:2]+train[5:99]", Weight: 1}}, "a1 a2 b2 b3"},
		{[]Source{{Path: c, Weight: 1, Format: "completion", Fields: map[string]string{"prompt": "q", "completion": "a"}}, {Path: b, Split: "train[:1]", Weight: 1}}, "c2 c3 c4 b1"},
		{[]Source{{Path: parquet, Split: "train[:50%]", Weight: 1, Format: "completion", Fields: map[string]string{"prompt": "id", "completion": "id"}}}, ""},
	} {
		cfg := Default()
		cfg.Sources, cfg.Streaming, cfg.Shuffle = test.sources, true, false
		set, _, err := Load(context.Background(), cfg, bytesTokenizer{})
		if test.want == "" {
			if err == nil || strings.Contains(err.Error(), "percent") {
				t.Errorf("percents of Parquet: %v", err) // these rows have another format
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		l, err := set.TrainLoader(2)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, place := range whereAll(t, l) {
			name, line, _ := strings.Cut(filepath.Base(place), ":")
			got = append(got, name[:1]+line)
		}
		l.Close()
		if strings.Join(got, " ") != test.want {
			t.Errorf("%+v: got %v, want %s", test.sources, got, test.want)
		}
	}
}

// until reads until an error comes.
func until(t *testing.T, l *Loader) (State, error) {
	t.Helper()
	for {
		s := l.State()
		if _, _, err := l.NextWindow(1); err != nil {
			return s, err
		}
		if s.Epoch > 1 {
			t.Fatal("no error comes")
		}
	}
}

// TestStreamThatBreaks: a malformed row and a file that changes end the reading when it gets there.
func TestStreamThatBreaks(t *testing.T) {
	lines := streamLines(0, 9000)
	middle := strings.Index(lines, "{\"text\": \"8500 ")
	for what, c := range map[string]struct {
		text   string
		change func(t *testing.T, path string)
		want   string
	}{
		"malformed":    {text: lines[:middle] + "{\"text\": 7}\n" + lines[middle:], want: "PATH:8501: field \"text\" is a number, want a string"},
		"cut off":      {text: lines[:middle+5], want: "PATH:8501: the row ends in the middle of its JSON (JSONL needs a whole object on one line)"},
		"id too large": {text: lines[:middle] + "{\"text\": \"\u00ff\"}\n", want: "PATH:8501: token id 199, the model knows 0 to 149: tokenizer and model do not belong together"},
		"grows": {text: lines, change: func(t *testing.T, path string) {
			writeFile(t, filepath.Dir(path), "rows.jsonl", lines+streamLines(9000, 1))
		}, want: "read PATH: the file has changed while it was streamed: it had "},
		"is cut":         {text: lines, change: func(t *testing.T, path string) { truncate(t, path, middle) }, want: "read PATH: the file has changed while it was streamed: it had "},
		"cut in a row":   {text: lines, change: func(t *testing.T, path string) { truncate(t, path, middle+5) }, want: "read PATH: the file has changed while it was streamed: it had "},
		"is gone":        {text: lines, change: func(t *testing.T, path string) { remove(t, path) }, want: "read PATH: it was there when the run began: stat "},
		"is written new": {text: lines, change: touch, want: "read PATH: the file has changed while it was streamed: it was of "},
	} {
		for _, begun := range []bool{false, true} { // when the file changes
			if begun && c.change == nil {
				continue
			}
			t.Run(fmt.Sprintf("%s,begun=%v", what, begun), func(t *testing.T) {
				cfg := Default()
				cfg.Path, cfg.Streaming = writeFile(t, t.TempDir(), "rows.jsonl", c.text), true
				set, _, err := Load(context.Background(), cfg, bytesTokenizer{})
				if err != nil {
					t.Fatal(err)
				}
				set.Vocab = 150
				l, err := set.TrainLoader(4)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if begun {
					mustNext(t, l, 1)
				}
				if c.change != nil {
					c.change(t, cfg.Path)
				}
				s, err := until(t, l)
				if want := strings.ReplaceAll(c.want, "PATH", cfg.Path); err == nil || !strings.HasPrefix(err.Error(), want) {
					t.Fatalf("got  %v\nwant %s", err, want)
				}
				if _, _, again := l.NextWindow(1); again == nil || again.Error() != err.Error() {
					t.Errorf("asked again: %v", again)
				}
				if c.change != nil {
					return
				}
				// put right, the run goes on where it stopped
				writeFile(t, filepath.Dir(cfg.Path), "rows.jsonl", lines)
				l = openStreamLoader(t, cfg, 4)
				if err := l.Restore(s); err != nil {
					t.Fatal(err)
				}
				mustNext(t, l, 1)
			})
		}
	}
}

func truncate(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.Truncate(path, int64(size)); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.Chtimes(path, time.Time{}, time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
}

// TestStreamStateOfOtherData: a cursor in other rows, or with other settings, is refused.
func TestStreamStateOfOtherData(t *testing.T) {
	cfg := streamConfig(t)
	l := openStreamLoader(t, cfg, 4)
	for l.at.in.Window == 0 {
		mustNext(t, l, 1)
	}
	first := l.State()
	for l.at.in.File == 0 {
		mustNext(t, l, 1)
	}
	second := l.State()
	l.Close()
	a, b := filepath.Join(cfg.Path, "a.jsonl"), filepath.Join(cfg.Path, "b.jsonl")
	const changed, data = ", or the files before it, are not what they were: give the run its old data back", "resume the data order: the data or the tokenizer has changed"
	for what, c := range map[string]struct {
		edit  func(c *Config)
		state func(s *State)
		from  State
		want  string
	}{
		"nothing":           {from: second},
		"a row behind":      {from: first, edit: func(c *Config) { swap(t, a, "{\"text\": \"5999 ", "{\"text\": \"5998 ") }},
		"another file":      {from: second, edit: func(c *Config) { writeFile(t, c.Path, "c.jsonl", streamLines(0, 1)) }},
		"the first window":  {from: second, edit: func(c *Config) { swap(t, a, "{\"text\": \"17 ", "{\"text\": \"18 ") }, want: data},
		"a row before":      {from: second, edit: func(c *Config) { swap(t, b, "{\"text\": \"6000 ", "{\"text\": \"6001 ") }, want: changed},
		"a file before":     {from: second, edit: func(c *Config) { writeFile(t, c.Path, "a.jsonl", streamLines(0, 5990)) }, want: changed},
		"a name before":     {from: second, edit: func(c *Config) { rename(t, a, filepath.Join(c.Path, "a2.jsonl")) }, want: changed},
		"fewer rows":        {from: second, edit: func(c *Config) { writeFile(t, c.Path, "b.jsonl", streamLines(6000, 10)) }, want: changed},
		"max_length":        {from: second, edit: func(c *Config) { c.MaxLength = 62 }, want: "resume the data order: the sequence length was 64, now it is 62"},
		"on_truncated":      {from: second, edit: func(c *Config) { c.OnTruncated = TruncatedDrop }, want: data},
		"no stream":         {from: second, edit: func(c *Config) { c.Streaming = false }, want: "resume the data order: dataset.streaming was true, now it is false"},
		"a file too many":   {from: second, state: func(s *State) { s.Stream.File = 2 }, want: "resume the data order: window "},
		"a row below 0":     {from: second, state: func(s *State) { s.Stream.Row = -1 }, want: "resume the data order: window "},
		"a row beyond":      {from: second, state: func(s *State) { s.Stream.Row = 1 << 40 }, want: changed},
		"a batch too many":  {from: second, state: func(s *State) { s.Position = 1 << 40 }, want: "resume the data order: batch 1099511627776 does not exist"},
		"another sum":       {from: second, state: func(s *State) { s.Stream.Sum++ }, want: changed},
		"an epoch below 0":  {from: second, state: func(s *State) { s.Epoch = -1 }, want: "resume the data order: epoch -1 does not exist"},
		"a part too many":   {from: second, state: func(s *State) { s.Stream.Part = 1 << 40 }},
		"a window below 0":  {from: second, state: func(s *State) { s.Stream.Window = -1 }, want: "resume the data order: window "},
		"a set's row count": {from: second, state: func(s *State) { s.Rows = 7 }, want: "resume the data order: the number of rows was 7, now it is 0"},
	} {
		t.Run(what, func(t *testing.T) {
			own := cfg
			own.Path = t.TempDir()
			if err := os.CopyFS(own.Path, os.DirFS(cfg.Path)); err != nil {
				t.Fatal(err)
			}
			oldA, oldB := a, b
			a, b = filepath.Join(own.Path, "a.jsonl"), filepath.Join(own.Path, "b.jsonl")
			defer func() { a, b = oldA, oldB }()
			s := c.from
			if c.edit != nil {
				c.edit(&own)
			}
			if c.state != nil {
				c.state(&s)
			}
			err := openStreamLoader(t, own, 4).Restore(s)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func swap(t *testing.T, path, before, after string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Dir(path), filepath.Base(path), replaced(t, string(raw), before, after))
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
