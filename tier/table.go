// Package tier validates a program on a machine, as a person would. Each tier is a configuration that the program runs
// in a process of its own. The package judges the files of the run by numbers that are in this package, not in the
// configuration.
package tier

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tierlora/tierlora/quant"
)

// Tier is a run with its criteria. The configuration must agree with them: an edited one fails.
type Tier struct {
	Name string
	// Name of a built-in configuration; a file of that name in the working folder or in configs/ takes precedence.
	Config string
	What   string // description of one line for people
	Base   string // key of Bases; "" = the model is embedded in the program
	GPU    bool

	Steps  int
	Method string       // value of the key adapter
	Quant  quant.Config // quantization of the base model's weights
	Rank   int
	Length int   // dataset.max_length
	Limit  int64 // largest planned memory on the device in bytes; 0 = no limit
	// Least fall of the mean loss, last tenth of the steps against the first, as a part of the first; 0 = none.
	Fall float64
	// HeldOut is the least fall of the validation loss, after the last step against before the first; 0 = none.
	HeldOut   float64
	Reference string // reference curve that the run must not leave, as expect.reference names it; "" = none
	Saves     int    // steps between checkpoints; the last two must exist; 0 = only the one at the end
	Flat      bool   // the run is long enough to show a growth of memory
	// Largest time of the last tenth of the steps, as a multiple of the first tenth; 0 = the run is too short to judge.
	Drift float64

	Time time.Duration // time limit of each command of the tier
}

// Bases lists the base models of tiers, by the names that --base accepts.
var Bases = []string{"135m", "1.1b", "7b"}

// All is the name that selects all tiers on a GPU, in the order of the table.
const All = "all"

// replaySteps is the number of first steps that are run again and compared bit for bit.
const replaySteps = 5

const mb, gb = 1_000_000, 1_000_000_000 // as MB and GB in configurations

const convergenceCurve = "embedded:smollm2_convergence.json" // PEFT's curve

// Table lists the tiers, those on a GPU first, by size.
var Table = []Tier{
	{Name: "quick", Config: "gpu_smollm2_quick", What: "135M, 256 MB: does it run?", Base: "135m", GPU: true,
		Steps: 10, Method: "qlora", Quant: quant.Default(), Rank: 8, Length: 512, Limit: 256 * mb, Time: 10 * time.Minute},
	{Name: "convergence", Config: "gpu_smollm2_convergence", What: "135M, 256 MB: does it learn?", Base: "135m", GPU: true,
		Steps: 100, Method: "qlora", Quant: quant.Default(), Rank: 8, Length: 160, Limit: 256 * mb, Fall: 0.30, HeldOut: 0.30, Reference: convergenceCurve, Drift: 1.25, Time: 20 * time.Minute},
	{Name: "memory", Config: "gpu_tinyllama_memory", What: "1.1B, 2 GB, full-length sequences: does it hold what it plans?", Base: "1.1b", GPU: true,
		Steps: 50, Method: "qlora", Quant: quant.Default(), Rank: 16, Length: 512, Limit: 2 * gb, Drift: 1.25, Time: 20 * time.Minute},
	{Name: "extended", Config: "gpu_tinyllama_extended", What: "1.1B, 2 GB, evaluations and checkpoints: does it last?", Base: "1.1b", GPU: true,
		Steps: 500, Method: "qlora", Quant: quant.Default(), Rank: 16, Length: 512, Limit: 2 * gb, Fall: 0.05, HeldOut: 0.05, Saves: 100, Flat: true, Drift: 1.25, Time: time.Hour},
	{Name: "full", Config: "gpu_llama7b_full", What: "7B, 12 GB: the real thing", Base: "7b", GPU: true,
		Steps: 1000, Method: "qlora", Quant: quant.Default(), Rank: 16, Length: 512, Limit: 12 * gb, Fall: 0.30, HeldOut: 0.05, Saves: 250, Flat: true, Drift: 1.25, Time: 3 * time.Hour},
	{Name: "cpu_stories_quick", Config: "cpu_stories_quick", What: "260K on the CPU, nothing but the program",
		Steps: 100, Method: "qlora", Quant: quant.Default(), Rank: 8, Length: 256, Fall: 0.10, Time: 10 * time.Minute},
	{Name: "cpu_smollm2_quick", Config: "cpu_smollm2_quick", What: "135M on the CPU: does it run as PEFT does?", Base: "135m",
		Steps: 10, Method: "qlora", Quant: quant.Default(), Rank: 8, Length: 160, HeldOut: 0.05, Reference: "embedded:smollm2_quick.json", Time: 30 * time.Minute},
	{Name: "cpu_smollm2_convergence", Config: "cpu_smollm2_convergence", What: "135M on the CPU: does it learn as PEFT does?", Base: "135m",
		Steps: 100, Method: "qlora", Quant: quant.Default(), Rank: 8, Length: 160, Fall: 0.30, HeldOut: 0.30, Reference: convergenceCurve, Time: 2 * time.Hour},
}

// Find returns the tiers that words name, each once, in the words' order.
func Find(words ...string) ([]Tier, error) {
	var found []Tier
	for _, w := range words {
		n := len(found)
		for _, t := range Table {
			if t.Name != w && !(w == All && t.GPU) {
				continue
			}
			n = -1
			if !contains(found, t.Name) {
				found = append(found, t)
			}
		}
		if n >= 0 {
			return nil, fmt.Errorf("there is no tier %q; there are %s, and %s for all on a GPU", w, strings.Join(Names(), ", "), All)
		}
	}
	return found, nil
}

// Names returns the tiers' names in the order of the table.
func Names() []string {
	var names []string
	for _, t := range Table {
		names = append(names, t.Name)
	}
	return names
}

func contains(tiers []Tier, name string) bool {
	for _, t := range tiers {
		if t.Name == name {
			return true
		}
	}
	return false
}

// ParseBases returns the base model of each tier from the values of --base: DIR, BASE=DIR with a name of Bases, or
// TIER=DIR. A tier's own value takes precedence over its base's, and that over a bare one. A bare one must not stand
// for two different models.
func ParseBases(tiers []Tier, values []string) (map[string]string, error) {
	names := map[string]bool{}
	for _, b := range Bases {
		names[b] = true
	}
	for _, n := range Names() {
		names[n] = true
	}
	given, bare := map[string]string{}, ""
	for _, v := range values {
		key, dir, ok := strings.Cut(v, "=")
		if !ok || !names[key] {
			if _, err := os.Stat(v); ok && err != nil && !strings.ContainsAny(key, `/\`) {
				return nil, fmt.Errorf("--base %s: %s is no size and no tier; there are %s, %s", v, key, strings.Join(Bases, ", "), strings.Join(Names(), ", "))
			}
			key, dir = "", v
		}
		switch {
		case dir == "":
			return nil, fmt.Errorf("--base %s: name a folder or a model", v)
		case key != "" && given[key] != "" || key == "" && bare != "":
			return nil, fmt.Errorf("--base %s: a second base model for the same tiers", v)
		case key == "":
			bare = dir
		default:
			given[key] = dir
		}
	}
	of, used, sizes := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, t := range tiers {
		switch {
		case given[t.Name] != "":
			of[t.Name], used[t.Name] = given[t.Name], true
		case t.Base != "" && given[t.Base] != "":
			of[t.Name], used[t.Base] = given[t.Base], true
		case bare != "" && t.Base != "":
			of[t.Name], sizes[t.Base] = bare, true
		}
	}
	if len(sizes) > 1 {
		return nil, fmt.Errorf("--base %s would be the base model of tiers of different sizes: write --base %s=DIR for each", bare, strings.Join(Bases, "=DIR, --base "))
	}
	for _, v := range values {
		key, _, ok := strings.Cut(v, "=")
		if ok = ok && names[key]; ok && !used[key] || !ok && len(sizes) == 0 {
			return nil, fmt.Errorf("--base %s: no tier of this call takes it", v)
		}
	}
	return of, nil
}
