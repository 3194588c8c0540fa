package gpu

import (
	"fmt"
	"strings"
)

// Chip is a kind of device: what a plan needs to know of one that is not there.
type Chip struct {
	Name   string // on the command line
	Full   string // NVIDIA's name
	SM     int    // compute capability, 10 major + minor
	Memory int64  // bytes of the card; 0 = not known
	Sheet  Sheet  // zero = not known
}

// Sheet has the rates of NVIDIA's data sheets and architecture papers: dense matrices, sums in fp32.
type Sheet struct {
	Bandwidth float64 // bytes per second of device memory
	Half      float64 // FLOP/s of bf16 and fp16
	FP8       float64 // FLOP/s of 8-bit floats; 0 = the chip has none
	Link      float64 // bytes per second of PCI Express, one way
}

// Chips are the kinds known by name. Memory is what nvidia-smi shows of a card.
var Chips = []Chip{
	{"h100", "NVIDIA H100 80GB HBM3", 90, 81559 << 20, Sheet{3.35e12, 989e12, 1979e12, 64e9}}, // the first is taken where none is named
	{"h200", "NVIDIA H200", 90, 143771 << 20, Sheet{4.8e12, 989e12, 1979e12, 64e9}},
	{"b200", "NVIDIA B200", 100, 183359 << 20, Sheet{8e12, 2250e12, 4500e12, 64e9}},
	{"a100", "NVIDIA A100-SXM4-80GB", 80, 81920 << 20, Sheet{2.039e12, 312e12, 0, 32e9}},
	{"a100-40gb", "NVIDIA A100-SXM4-40GB", 80, 40960 << 20, Sheet{1.555e12, 312e12, 0, 32e9}},
	{"a10", "NVIDIA A10", 86, 23028 << 20, Sheet{0.6e12, 125e12, 0, 32e9}},
	{"l4", "NVIDIA L4", 89, 23034 << 20, Sheet{0.3e12, 121e12, 242e12, 32e9}},
	{"l40s", "NVIDIA L40S", 89, 46068 << 20, Sheet{0.864e12, 362e12, 733e12, 32e9}},
	{"4060", "NVIDIA GeForce RTX 4060", 89, 8188 << 20, Sheet{0.272e12, 30.2e12, 60.4e12, 16e9}},
	{"3060", "NVIDIA GeForce RTX 3060", 86, 12288 << 20, Sheet{0.36e12, 25.5e12, 0, 32e9}},
	{"4080", "NVIDIA GeForce RTX 4080", 89, 16376 << 20, Sheet{0.717e12, 97.5e12, 195e12, 32e9}},
	{"3090", "NVIDIA GeForce RTX 3090", 86, 24576 << 20, Sheet{0.936e12, 71e12, 0, 32e9}},
	{"4090", "NVIDIA GeForce RTX 4090", 89, 24564 << 20, Sheet{1.008e12, 165.2e12, 330.3e12, 32e9}},
	{"5090", "NVIDIA GeForce RTX 5090", 120, 32607 << 20, Sheet{1.792e12, 209.5e12, 419e12, 64e9}},
}

// FindChip reads a name of Chips or a compute capability: "h100", "RTX 4090", "9.0", "sm_90".
func FindChip(s string) (Chip, error) {
	name := strings.ToLower(strings.TrimSpace(s))
	for _, prefix := range []string{"nvidia ", "geforce ", "rtx"} {
		name = strings.TrimSpace(strings.TrimPrefix(name, prefix))
	}
	names := make([]string, len(Chips))
	for i, c := range Chips {
		if names[i] = c.Name; name == c.Name {
			return c, nil
		}
	}
	var major, minor int
	text := strings.TrimPrefix(name, "sm_")
	if n, _ := fmt.Sscanf(text, "%d.%d", &major, &minor); n != 2 {
		if n, _ := fmt.Sscanf(text, "%d", &minor); n == 1 {
			major, minor = minor/10, minor%10
		}
	}
	sm := 10*major + minor
	if text != fmt.Sprint(sm) && text != fmt.Sprintf("%d.%d", major, minor) || major < 1 || minor > 9 {
		return Chip{}, fmt.Errorf("GPU %q is not known: name one of %s, or a compute capability such as 9.0", s,
			strings.Join(names, ", "))
	}
	if err := CheckDriver(KernelsVersion, sm); err != nil {
		return Chip{}, fmt.Errorf("GPU %q: %w", s, err)
	}
	return Chip{Name: text, Full: fmt.Sprintf("a GPU of compute capability %d.%d", major, minor), SM: sm}, nil
}
