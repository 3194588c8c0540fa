package doctor

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func nothingNear(string, []string) string { return "" }

func TestPinsRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pins.json")
	f := sound()
	if _, err := ReadPins(path, nothingNear); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "--refresh-pins writes the file") {
		t.Errorf("no file: %v", err)
	}
	if err := NewPins(f).Write(path); err != nil {
		t.Fatal(err)
	}
	p, err := ReadPins(path, nothingNear)
	if err != nil || !maps.Equal(p, NewPins(f)) || len(p) != len(PinKeys) {
		t.Fatalf("%v, %v", p, err)
	}
	if got := p.Compare(f); len(got) != 0 {
		t.Errorf("the machine itself differs: %v", got)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Refresh(f).Write(path); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(path); err != nil || string(again) != string(first) {
		t.Errorf("written again: %v\n%s\n%s", err, first, again)
	}
}

func TestPinsCompare(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(f *Facts)
		want   string
	}{
		{"program", func(f *Facts) { f.Version = "v2" }, "program: expected v1.0.0, found v2; build or fetch that version, or --refresh-pins"},
		{"platform", func(f *Facts) { f.Platform = "linux/arm64" }, "platform: expected linux/amd64, found linux/arm64"},
		{"instructions", func(f *Facts) { f.Instructions = "generic" }, "cpu_instructions: expected avx2, found generic"},
		{"kernels", func(f *Facts) { f.Hardware.KernelsSHA = "def" }, "kernels_sha256: expected abc, found def"},
		{"driver", func(f *Facts) { f.Hardware.Driver = "580.65.06" }, "driver: expected 580.159.04, found 580.65.06; install that driver"},
		{"CUDA", func(f *Facts) { f.Hardware.DriverCUDA = "12.8" }, "driver_cuda: expected 13.0, found 12.8"},
		{"another card", func(f *Facts) { f.Hardware.GPUs[0].Name = "NVIDIA H100" }, "gpu: expected NVIDIA H200, found NVIDIA H100"},
		{"chip", func(f *Facts) { f.Hardware.GPUs[0].Major = 10 }, "compute_capability: expected 9.0, found 10.0"},
		{"code", func(f *Facts) { f.Hardware.GPUs[0].Code = "compute_90" }, "gpu_code: expected sm_90a, found compute_90"},
		{"more cards", func(f *Facts) { f.Hardware.GPUs = append(f.Hardware.GPUs, f.Hardware.GPUs[0]) }, "gpu_count: expected 1, found 2"},
		{"no cuBLASLt", func(f *Facts) { f.Hardware.Libraries = nil }, "cublaslt: expected 12.9.1, found none"},
	} {
		pins, f := NewPins(sound()), sound()
		c.change(&f)
		got := pins.Compare(f)
		if len(got) != 1 || !strings.HasPrefix(got[0].String(), c.want) || got[0].Remedy == "" {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
		delete(pins, strings.Split(c.want, ":")[0])
		if got := pins.Compare(f); len(got) != 0 {
			t.Errorf("%s: what is not pinned was compared: %v", c.name, got)
		}
		if got := pins.Refresh(f).Compare(f); len(got) != 0 {
			t.Errorf("%s: fresh pins differ: %v", c.name, got)
		}
	}
}

func TestPinsAtLeast(t *testing.T) {
	for pin, met := range map[string]bool{">=580": true, ">=580.159.04": true, ">= 580.159.4": true, ">=580.159.05": false, ">=581": false, ">=9": true, "580": false, "580.159.04": true} {
		f := sound()
		p := Pins{"driver": pin}
		if got := p.Compare(f); (len(got) == 0) != met {
			t.Errorf("%s: %v", pin, got)
		}
		want := f.Hardware.Driver
		if met && strings.HasPrefix(pin, ">=") {
			want = pin
		}
		if now := p.Refresh(f)["driver"]; now != want {
			t.Errorf("%s refreshed is %s, want %s", pin, now, want)
		}
	}
	f := sound()
	f.Hardware.Driver = ""
	if got := (Pins{"driver": ">=1"}).Compare(f); len(got) != 1 {
		t.Errorf("no driver meets >=1: %v", got)
	}
}

func TestPinsDamaged(t *testing.T) {
	near := func(name string, _ []string) string { return map[string]string{"drivr": "driver"}[name] }
	const good = `{"format": "tierlora-pins-1", "driver": ">=580", "gpu": "NVIDIA H200"}`
	if p, err := parsePins([]byte(good), near); err != nil || len(p) != 2 {
		t.Errorf("%v, %v", p, err)
	}
	for text, want := range map[string]string{
		"":                             "line 1, column 1: ",
		good[:40]:                      "line 1, column ",
		"[]":                           "the value is a ",
		"null":                         "it is no file of pins",
		`{}`:                           `it is no file of pins: its key "format" is not "tierlora-pins-1"`,
		`{"format": "other"}`:          "it is no file of pins",
		`{"format": null}`:             "it is no file of pins",
		`{"version": "1", "gpus": []}`: "the value is a ",
		`{"format": "tierlora-pins-1", "drivr": "580"}`:                              `unknown key "drivr"; the nearest is driver`,
		`{"format": "tierlora-pins-1", "x": "1"}`:                                    `unknown key "x"; the keys are format, program, `,
		`{"format": "tierlora-pins-1", "driver": null}`:                              "driver: null; leave a key out",
		`{"format": "tierlora-pins-1", "driver": 580}`:                               "the value is a ",
		`{"format": "tierlora-pins-1", "driver": ">=new"}`:                           `>= is for versions such as >=580.65`,
		`{"format": "tierlora-pins-1", "gpu": ">=1"}`:                                `gpu: ">=1": >= is for versions`,
		`{"format": "tierlora-pins-1", "driver": "1", "driver": "2"}`:                `key "driver" stands twice`,
		`{"format": "tierlora-pins-1", "a": "` + strings.Repeat("x", maxPins) + `"}`: "are more than a file of pins has",
	} {
		if p, err := parsePins([]byte(text), near); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, %v; want %s", text, p, err, want)
		}
	}
}

func FuzzPins(f *testing.F) {
	f.Add([]byte(`{"format": "tierlora-pins-1", "driver": ">=580", "gpu": "NVIDIA H200"}`))
	f.Add([]byte(`{"format": "tierlora-pins-1", "driver": ">=1.2", "driver": "\u003e"}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePins(b, nothingNear)
		if err != nil {
			return
		}
		p.Compare(sound())
		path := filepath.Join(dir, "pins.json") // what was read is written so that it is read as the same
		if err := p.Write(path); err != nil {
			t.Fatal(err)
		}
		if again, err := ReadPins(path, nothingNear); err != nil || !maps.Equal(again, p) {
			t.Errorf("%v read again is %v, %v", p, again, err)
		}
	})
}
