// Package tier validates a program on a machine, as a person would: each tier is a configuration that the program runs in
// a process of its own, and what the run left is judged by numbers that stand here, not in the configuration.
package tier

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tierlora/tierlora/quant"
)

// Tier is a run and what has to hold of it. The configuration must agree with it: an edited one fails.
type Tier struct {
	Name   string
	Config string // among the built-in ones; a file of that name in the working folder or in configs/ wins
	What   string // a line for people
	Base   string // key of Bases; "" = the model is in the program
	GPU    bool

	Steps  int
	Method string       // adapter:
	Quant  quant.Config // of the base model's weights
	Rank   int
	Length int     // dataset.max_length
	Limit  int64   // most bytes that plan and run may hold on the device; 0 = none
	Fall   float64 // least fall of the mean loss, last tenth of the steps against the first, as a part of the first; 0 = none
	// HeldOut is the least fall of the loss on held-out rows, after the last step against before the first; 0 = none.
	HeldOut   float64
	Reference string  // the curve that the run must not leave, as expect.reference names it; "" = none
	Saves     int     // steps between checkpoints, of which the last two must be there; 0 = the one at the end
	Flat      bool    // lasts long enough to see memory grow
	Drift     float64 // most that the last tenth of the steps may take, as a multiple of the first tenth; 0 = too short to tell

	Time time.Duration // of each command of the tier, before it is stopped as hung
}

// Bases are the base models of tiers, by the name that --base knows.
var Bases = []string{"135m", "1.1b", "7b"}

// All is the name of all tiers on a GPU, in the order of the table.
const All = "all"

// replaySteps are how many first steps of a run are run again and compared bit for bit.
const replaySteps = 5

const mb, gb = 1_000_000, 1_000_000_000 // as MB and GB in configurations

const convergenceCurve = "embedded:smollm2_convergence.json" // PEFT's

// Table is the tiers, those on a GPU first, by size.
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

// Find is the tiers that words name, each once, in the words' order.
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

// Names are the tiers' names in the order of the table.
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

// ParseBases gives each tier its base model from the values of --base: DIR, BASE=DIR with a name of Bases, or TIER=DIR. A
// tier's own wins over its base's, and that over a bare one, which must not stand for two different models.
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
