package hardware

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lines reads a file of readings.
func lines(t *testing.T, dir string) []Line {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	var all []Line
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		var l Line
		if json.Unmarshal(in.Bytes(), &l) == nil {
			all = append(all, l)
		}
	}
	return all
}

// TestSampler: readings of this machine and of two cards are written, those of a later start behind them; a number that
// a card does not have is left out.
func TestSampler(t *testing.T) {
	dir := t.TempDir()
	cards := func() []Card { return []Card{{0, 97, 1 << 30, 301.5, 61}, {1, 0, 2 << 30, -1, -1}} }
	until := func(n int) {
		t.Helper()
		s, err := start(dir, cards, 5*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(20 * time.Second); len(lines(t, dir)) < n && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		s.Stop()
		s.Stop() // once more harms nothing
	}
	until(3)
	f, err := os.OpenFile(filepath.Join(dir, File), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"hardware":1,"ti`); err != nil { // a process that was killed
		t.Fatal(err)
	}
	f.Close()
	n := len(lines(t, dir))
	until(n + 2)
	all := lines(t, dir)
	if len(all) < n+2 {
		t.Fatalf("%d lines, %d before the second start", len(all), n)
	}
	last := all[len(all)-1]
	for name, want := range map[string]float64{"gpu0_utilization_percent": 97, "gpu0_memory_bytes": 1 << 30, "gpu0_power_watts": 301.5, "gpu0_temperature_celsius": 61, "gpu1_utilization_percent": 0, "gpu1_memory_bytes": 2 << 30} {
		if got, ok := last.Reading[name]; !ok || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{"gpu1_power_watts", "gpu1_temperature_celsius"} {
		if v, ok := last.Reading[name]; ok {
			t.Errorf("%s is %v, and the card does not say it", name, v)
		}
	}
	for _, name := range []string{"memory_bytes", "memory_total_bytes", "process_memory_bytes", "disk_free_bytes", "process_cpu_percent"} {
		if v, ok := last.Reading[name]; !ok || v < 0 {
			t.Errorf("%s is %v, %v", name, v, ok)
		}
	}
	if v := last.Reading["process_memory_bytes"]; v > last.Reading["memory_total_bytes"] || last.Time < 1e9 || last.Seconds < 0 {
		t.Errorf("%+v", last)
	}
}

// TestSamplerKeepsForeignFiles: a file of that name that this program did not write, and a link, stay as they are.
func TestSamplerKeepsForeignFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, File)
	if err := os.WriteFile(path, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err := Start(dir, nil); err == nil || s != nil {
		t.Errorf("%v, %v", s, err)
	}
	if got, _ := os.ReadFile(path); string(got) != "mine" {
		t.Errorf("the file is %q", got)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, path); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(dir, nil); err == nil {
		t.Error("a link was written through")
	}
	var none *Sampler
	none.Stop()
}

// TestRates: percentages and rates follow from the counters of two readings; counters that went back, and files that are
// damaged, give none.
func TestRates(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := &machine{root: root, dir: root}
	put("stat", "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1\n")
	put("self/stat", "7 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 100 50 0 0")
	put("meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n")
	put("self/status", "Name:\tx\nVmRSS:\t  12 kB\n")
	put("self/io", "rchar: 5\nread_bytes: 1000\nwrite_bytes: 0\n")
	first := Reading{}
	m.host(first)
	if first["memory_bytes"] != 600*1024 || first["memory_total_bytes"] != 1000*1024 || first["process_memory_bytes"] != 12*1024 {
		t.Errorf("%v", first)
	}
	for name := range first {
		if strings.HasSuffix(name, "per_second") || strings.HasSuffix(name, "percent") {
			t.Errorf("the first reading has a rate: %s", name)
		}
	}
	m.at = m.at.Add(-10 * time.Second)
	put("stat", "cpu  130 0 120 750 100 0 0 0 90 0\n")
	put("self/stat", "7 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 1100 1050 0 0")
	put("self/io", "read_bytes: 21000\nwrite_bytes: junk\n")
	second := Reading{}
	m.host(second)
	if v := second["cpu_percent"]; v != 50 {
		t.Errorf("the processor is busy %v%%, want 50: 50 of 100 ticks", v)
	}
	if v := second["process_cpu_percent"]; v < 190 || v > 201 {
		t.Errorf("the process used %v%% of a core, want 200", v)
	}
	if v := second["process_disk_read_bytes_per_second"]; v < 1900 || v > 2001 {
		t.Errorf("%v bytes/s, want 2000", v)
	}
	put("stat", "cpu  1 x\n")
	put("self/stat", "(")
	put("self/io", "read_bytes: 1\n")
	third := Reading{}
	m.host(third)
	for _, name := range []string{"cpu_percent", "process_cpu_percent", "process_disk_read_bytes_per_second"} {
		if v, ok := third[name]; ok {
			t.Errorf("damaged: %s is %v", name, v)
		}
	}
}

// TestInterval: the time between readings doubles as their number grows.
func TestInterval(t *testing.T) {
	for n, want := range map[int]time.Duration{0: Interval, linesAtFirst - 1: Interval, linesAtFirst: 2 * Interval, 3 * linesAtFirst: 8 * Interval, 1 << 40: 7 * 128 * Interval} {
		if got := interval(n, Interval); n < 1<<40 && got != want || got > 20*time.Minute {
			t.Errorf("after %d readings %v", n, got)
		}
	}
}
