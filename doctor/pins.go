package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
)

// Pins record what a run's numbers depend on besides its configuration and data, by name (PinKeys). A value is text
// that must be equal, or ">=" with the least version.
type Pins map[string]string

// pinFormat is the value of the key "format", with which every file of pins begins.
const pinFormat = "tierlora-pins-1"

// maxPins is the largest size of a file of pins in bytes.
const maxPins = 64 << 10

// PinKey is a fact that may be pinned.
type PinKey struct {
	Name, Meaning string
	ordered       bool // the value is a version, which ">=" compares
	remedy        string
	of            func(Facts) string
}

// PinKeys lists all of them, in the order of the file.
var PinKeys = []PinKey{
	{"program", "version of the program", false, "build or fetch that version", func(f Facts) string { return f.Version }},
	{"platform", "operating system and architecture", false, "use a machine of that kind", func(f Facts) string { return f.Platform }},
	{"cpu_instructions", "the instructions that the CPU's kernels use", false, "use a CPU of that kind; TRAINER_CPU chooses lower ones", func(f Facts) string { return f.Instructions }},
	{"kernels_sha256", "the compiled GPU kernels", false, "build from the same sources with make gpu", func(f Facts) string { return f.Hardware.KernelsSHA }},
	{"driver", "NVIDIA's driver", true, "install that driver", func(f Facts) string { return f.Hardware.Driver }},
	{"driver_cuda", "the newest CUDA that the driver serves", true, "install that driver", func(f Facts) string { return f.Hardware.DriverCUDA }},
	{"gpu_count", "how many GPUs are seen", true, "see CUDA_VISIBLE_DEVICES and nvidia-smi -L", func(f Facts) string { return strconv.Itoa(len(f.Hardware.GPUs)) }},
	{"gpu", "name of GPU 0", false, "choose it by CUDA_VISIBLE_DEVICES, or use a machine that has it", func(f Facts) string {
		if len(f.Hardware.GPUs) == 0 {
			return ""
		}
		return Shown(f.Hardware.GPUs[0].Name)
	}},
	{"compute_capability", "of GPU 0", true, "choose the card by CUDA_VISIBLE_DEVICES, or use a machine that has it", func(f Facts) string {
		if len(f.Hardware.GPUs) == 0 {
			return ""
		}
		return fmt.Sprintf("%d.%d", f.Hardware.GPUs[0].Major, f.Hardware.GPUs[0].Minor)
	}},
	{"gpu_code", "form of the kernels that GPU 0 runs", false, "see CUDA_FORCE_PTX_JIT, or build for the chip", func(f Facts) string {
		if len(f.Hardware.GPUs) == 0 {
			return ""
		}
		return f.Hardware.GPUs[0].Code
	}},
	{"cublaslt", "version of cuBLASLt", true, "install that version, or name its file by TRAINER_CUBLASLT", func(f Facts) string {
		for _, l := range f.Hardware.Libraries {
			if l.Name == "cuBLASLt" {
				return l.Version
			}
		}
		return ""
	}},
}

// NewPins returns the pins of a machine; a fact that is missing is pinned as "", absent.
func NewPins(f Facts) Pins {
	p := Pins{}
	for _, k := range PinKeys {
		p[k.Name] = k.of(f)
	}
	return p
}

// ReadPins reads a file of pins. nearest returns the name that a misspelt one probably means.
func ReadPins(path string, nearest func(name string, names []string) string) (Pins, error) {
	data, err := regular.ReadFile(path)
	if err == nil {
		var p Pins
		if p, err = parsePins(data, nearest); err == nil {
			return p, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read pins: %w; --refresh-pins writes the file", err)
	}
	return nil, fmt.Errorf("read pins %s: %w", path, err)
}

func parsePins(data []byte, nearest func(name string, names []string) string) (Pins, error) {
	if len(data) > maxPins {
		return nil, fmt.Errorf("%d bytes are more than a file of pins has (%d)", len(data), maxPins)
	}
	read := map[string]*string{}
	if err := jsonerr.Unmarshal(data, &read); err != nil {
		return nil, err
	}
	names := []string{"format"}
	for _, k := range PinKeys {
		names = append(names, k.Name)
	}
	if f := read["format"]; f == nil || *f != pinFormat {
		return nil, fmt.Errorf("it is no file of pins: its key \"format\" is not %q", pinFormat)
	}
	if err := duplicate(data); err != nil {
		return nil, err
	}
	var problems []error
	p := Pins{}
	given := make([]string, 0, len(read))
	for name := range read {
		given = append(given, name)
	}
	slices.Sort(given)
	for _, name := range given {
		at := slices.IndexFunc(PinKeys, func(k PinKey) bool { return k.Name == name })
		value := read[name]
		switch {
		case name == "format":
		case at < 0:
			hint := "; the keys are " + strings.Join(names, ", ")
			if near := nearest(name, names); near != "" {
				hint = "; the nearest is " + near
			}
			problems = append(problems, fmt.Errorf("unknown key %q%s", Shown(name), hint))
		case value == nil:
			problems = append(problems, fmt.Errorf("%s: null; leave a key out that is not to be compared", name))
		default:
			if least, ok := strings.CutPrefix(*value, ">="); ok {
				if _, err := version(least); !PinKeys[at].ordered || err != nil {
					problems = append(problems, fmt.Errorf("%s: %q: >= is for versions such as >=580.65", name, Shown(*value)))
				}
			}
			p[name] = *value
		}
	}
	return p, errors.Join(problems...)
}

// duplicate refuses a key that occurs twice, because it is unknown which value is meant. data is a valid object.
func duplicate(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	seen := map[string]bool{}
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		if seen[name] {
			return fmt.Errorf("key %q stands twice", Shown(name))
		}
		seen[name] = true
		if _, err := d.Token(); err != nil { // values are plain strings
			return err
		}
	}
	return nil
}

// version parses numbers separated by dots.
func version(s string) (parts []int, err error) {
	for _, p := range strings.Split(strings.TrimSpace(s), ".") {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q is no version", Shown(s))
		}
		parts = append(parts, n)
	}
	return parts, nil
}

// meets reports whether a found value satisfies a pin.
func meets(pin, found string) bool {
	least, ok := strings.CutPrefix(pin, ">=")
	if !ok {
		return pin == found
	}
	a, aerr := version(least)
	b, berr := version(found)
	return aerr == nil && berr == nil && slices.Compare(b, a) >= 0
}

// Mismatch is a pin that a machine does not satisfy.
type Mismatch struct {
	Key      string `json:"key"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
	Remedy   string `json:"remedy"`
}

// String returns the mismatch as a sentence with its remedy.
func (m Mismatch) String() string {
	quote := func(s string) string {
		if s == "" {
			return "none"
		}
		return Shown(s)
	}
	return fmt.Sprintf("%s: expected %s, found %s; %s, or --refresh-pins", m.Key, quote(m.Expected), quote(m.Found), m.Remedy)
}

// Compare lists the pins that a machine does not satisfy, in the order of PinKeys. It does not compare facts without a
// pin.
func (p Pins) Compare(f Facts) []Mismatch {
	found := []Mismatch{}
	for _, k := range PinKeys {
		if want, pinned := p[k.Name]; pinned && !meets(want, k.of(f)) {
			found = append(found, Mismatch{k.Name, want, k.of(f), k.remedy})
		}
	}
	return found
}

// Refresh returns the pins of a machine, and keeps each ">=" of the old pins that it satisfies.
func (p Pins) Refresh(f Facts) Pins {
	now := NewPins(f)
	for name, was := range p {
		if strings.HasPrefix(was, ">=") && meets(was, now[name]) {
			now[name] = was
		}
	}
	return now
}

// Write replaces the file atomically.
func (p Pins) Write(path string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"format\": %q", pinFormat)
	for _, k := range PinKeys {
		value, pinned := p[k.Name]
		if !pinned {
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("write pins: %w", err)
		}
		fmt.Fprintf(&b, ",\n  %q: %s", k.Name, bytes.ReplaceAll(text, []byte(`\u003e`), []byte(">")))
	}
	b.WriteString("\n}\n")
	if err := atomicfile.Write(path, b.Bytes()); err != nil {
		return fmt.Errorf("write pins: %w", err)
	}
	return nil
}
