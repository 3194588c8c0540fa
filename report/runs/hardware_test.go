package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/hardware"
)

// TestHardware: readings become plots by their units, cards beside each other, unknown numbers by themselves; a later
// process continues behind the one before, damaged lines are left out and said, and a follower sees the same.
func TestHardware(t *testing.T) {
	line := func(seconds float64, reading string) string {
		return fmt.Sprintf(`{"hardware":1,"time":1.7e9,"seconds":%v,"reading":{%s}}`+"\n", seconds, reading)
	}
	text := line(0, `"cpu_percent":50,"gpu0_utilization_percent":97,"gpu1_utilization_percent":12,"gpu0_memory_bytes":1073741824`) +
		line(5, `"cpu_percent":60,"gpu0_utilization_percent":98,"gpu1_utilization_percent":13,"npu_queue":7`) + "junk\n" +
		`{"hardware":2,"reading":{"x":1}}` + "\n" + line(0, `"cpu_percent":70`) + line(5, `"cpu_percent":80`)
	dir := folder(t, map[string]string{train.MetricsFile: stepLines(3), hardware.File: text})
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, markdown := pages(t, r)
	for _, want := range []string{"**GPU utilisation**", "| GPU 0 | 97 | 97.5 | 98 | 98 | 2 |", "| GPU 1 | 12 | 12.5 | 13 | 13 | 2 |", "**GPU memory in use**", "| GPU 0 | 1 | 1 | 1 | 1 | 1 |",
		"| whole machine | 50 | 65 | 80 | 80 | 4 |", "**npu_queue**", "hardware.jsonl", "2 damaged lines are left out, the first is line 3"} {
		if !strings.Contains(markdown, want) {
			t.Errorf("no %q in\n%s", want, markdown)
		}
	}
	for _, s := range r.Hardware {
		if s.Name == "cpu_percent" && fmt.Sprint(s.X) != "[0 5 5 10]" {
			t.Errorf("seconds %v", s.X)
		}
	}
	f := Follow(dir)
	if _, _, err := f.Read(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, hardware.File), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(line(10, `"cpu_percent":90`)); err != nil {
		t.Fatal(err)
	}
	file.Close()
	again, changed, err := f.Read()
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	if _, markdown := pages(t, again); !strings.Contains(markdown, "| whole machine | 50 | 70 | 90 | 90 | 5 |") {
		t.Errorf("followed:\n%s", markdown)
	}
}

// FuzzReadings: any file of readings is read without a fault, within bounds.
func FuzzReadings(f *testing.F) {
	f.Add([]byte(`{"hardware":1,"seconds":1,"reading":{"cpu_percent":5}}`))
	f.Add([]byte(`{"hardware":1,"seconds":-1,"reading":{"gpu0_power_watts":1e400}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &Run{}
		g := newReadings(r)
		for line := range strings.Lines(string(text)) {
			g.take([]byte(line))
		}
		if len(r.Hardware) > mostReadings {
			t.Errorf("%d names", len(r.Hardware))
		}
		r.hardware()
	})
}
