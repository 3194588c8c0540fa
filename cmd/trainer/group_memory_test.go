package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/session"
)

// TestGroupMemory: a control group too small for the program's start is refused with what it leaves and what is needed,
// and in a small one garbage is collected before the group is full.
func TestGroupMemory(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	group := func(limit, used string) string {
		dir := t.TempDir()
		if err := os.CopyFS(dir, fstest.MapFS{"proc/self/cgroup": {Data: []byte("0::/\n")},
			"sys/fs/cgroup/memory.max":     {Data: []byte(limit + "\n")},
			"sys/fs/cgroup/memory.current": {Data: []byte(used + "\n")}}); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for name, c := range map[string]struct {
		limit, used string
		tokenizer   int64
		collected   int64 // the collector's limit; 0 = none is set
		want        string
	}{
		"no limit":            {"max", "4194304", 1 << 30, 0, ""},
		"a large group":       {"1073741824", "4194304", 3 << 20, 1<<30 - 8<<20, ""},
		"20 MiB":              {"20971520", "4194304", 0, 12 << 20, ""},
		"as large as must be": {"18874368", "4194304", 0, 10 << 20, ""},
		"16 MiB": {"16777216", "4194304", 0, 8 << 20, "the program takes 14.0 MiB before it can plan a " +
			"run, and its control group (a container, a job) leaves it 12.0 MiB; raise that limit: memory.max"},
		"a tokenizer": {"20971520", "4194304", 1 << 20, 12 << 20, "with a tokenizer.json of 1.0 MiB, takes 22.0 MiB " +
			"before it can plan a run, and its control group (a container, a job) leaves it 16.0 MiB"},
		"nothing left": {"2097152", "4194304", 0, 0, "leaves it 0 B"},
	} {
		var set int64
		g := withinGroup(group(c.limit, c.used), func(n int64) int64 { set = n; return math.MaxInt64 })
		err := g.holds(c.tokenizer, 1)
		if set != c.collected {
			t.Errorf("%s: the collector's limit is %d, want %d", name, set, c.collected)
		}
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, session.ErrDoesNotFit) ||
			!strings.Contains(err.Error(), c.want) || exitCode(err) != exitDoesNotFit) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	g := withinGroup(group("41943040", "4194304"), func(n int64) int64 { return n }) // 40 MiB, 36 of them left
	for n, fits := range map[int]bool{0: true, 1: true, 7: true, 8: false, 16: false, 64: false} {
		if err := g.holds(0, n); (err == nil) != fits || err != nil && (exitCode(err) != exitDoesNotFit ||
			!strings.Contains(err.Error(), "the program with ")) {
			t.Errorf("%d ranks of a process in 40 MiB: %v", n, err)
		}
	}
	for n, fits := range map[int]bool{0: true, 1: true, 2: true, 3: false, 4: false} {
		if err := g.holdsProcesses(n); (err == nil) != fits || err != nil && (exitCode(err) != exitDoesNotFit ||
			!strings.Contains(err.Error(), "processes take ")) {
			t.Errorf("%d processes in 40 MiB: %v", n, err)
		}
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	withinGroup(group("20971520", "4194304"), func(int64) int64 { t.Error("GOMEMLIMIT was overridden"); return 0 })
}

func TestTokenizerBytes(t *testing.T) {
	dir := t.TempDir()
	if n := tokenizerBytes(t.Context(), dir, session.Env{}); n != 0 {
		t.Errorf("a folder without a tokenizer: %d", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), make([]byte, 77), 0o644); err != nil {
		t.Fatal(err)
	}
	if n := tokenizerBytes(t.Context(), dir, session.Env{}); n != 77 {
		t.Errorf("%d bytes, want 77", n)
	}
	if n := tokenizerBytes(t.Context(), "embedded:stories260K", session.Env{}); n != 0 {
		t.Errorf("an embedded model: %d", n)
	}
}
