package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/train"
)

// sweepRun is one run of a sweep.
type sweepRun struct {
	Name      string   `json:"name"`   // of its folder
	Values    []string `json:"values"` // key=value, as --set takes them
	Seed      uint64   `json:"seed"`
	Status    string   `json:"status"`
	Step      int      `json:"step"`
	EvalLoss  *float64 `json:"eval_loss,omitempty"`
	TrainLoss *float64 `json:"train_loss_smoothed,omitempty"`
	Seconds   *float64 `json:"seconds,omitempty"`
	Exit      int      `json:"exit_code,omitempty"`
	Problem   string   `json:"problem,omitempty"`

	dir     string
	sets    []string // of the whole command line
	spec    train.Spec
	assumed bool // as loaded.AssumedStorage
}

// dimension is a key with the values that are tried.
type dimension struct {
	key    string
	values []string
}

// runs are the runs of the sweep; every configuration is checked before the first begins.
func (o *sweepOptions) runs() ([]*sweepRun, error) {
	switch {
	case o.seeds < 1:
		return nil, usage(fmt.Errorf("sweep: --seeds %d: each combination is run at least once", o.seeds))
	case o.parallel < 1:
		return nil, usage(fmt.Errorf("sweep: --parallel %d: at least one run at a time", o.parallel))
	case o.sample < 0:
		return nil, usage(fmt.Errorf("sweep: --sample %d: must be 0, which is all, or more", o.sample))
	}
	if o.vram != "" {
		o.sets = append(o.sets, "vram="+o.vram)
		o.vram = ""
	}
	fixed, grid, err := dimensions(o.sets)
	if err != nil {
		return nil, err
	}
	if len(grid) == 0 && o.seeds == 1 {
		return nil, usage(errors.New("sweep: nothing to vary: give --set KEY=A,B with several values, or --seeds"))
	}
	combinations, err := o.combinations(grid)
	if err != nil {
		return nil, err
	}
	loaded, err := loadConfig(o.config, append(fixed, combinations[0]...))
	if err != nil {
		return nil, err
	}
	if o.out == "" {
		o.out = loaded.Spec.OutputDir
	}
	var all []*sweepRun
	names := map[string]bool{}
	for _, values := range combinations {
		for n := range o.seeds {
			r := &sweepRun{Values: values, sets: append(append([]string{}, fixed...), values...)}
			own, err := loadConfig(o.config, r.sets)
			if err != nil {
				return nil, fmt.Errorf("sweep: %s: %w", strings.Join(values, " "), err)
			}
			r.Seed = own.Spec.Seed + uint64(n)
			r.Name = runName(values, r.Seed, o.seeds > 1)
			if names[strings.ToLower(r.Name)] {
				return nil, usage(fmt.Errorf("sweep: two runs are named %s: a value is listed twice", r.Name))
			}
			names[strings.ToLower(r.Name)] = true
			r.dir = filepath.Join(o.out, r.Name)
			if o.seeds > 1 {
				r.sets = append(r.sets, "seed="+strconv.FormatUint(r.Seed, 10))
			}
			r.sets = append(r.sets, "output_dir="+r.dir)
			if own, err = loadConfig(o.config, r.sets); err != nil {
				return nil, fmt.Errorf("sweep: %s: %w", r.Name, err)
			}
			if own.Spec.Training.Resume != "" {
				return nil, usage(errors.New("sweep: training.resume: runs of a sweep resume by themselves; leave it out"))
			}
			r.spec, r.assumed = own.Spec, own.AssumedStorage
			all = append(all, r)
		}
	}
	return all, nil
}

// dimensions parts --set's values: with one they hold for all runs, with several they are tried.
func dimensions(sets []string) (fixed []string, grid []dimension, err error) {
	seen := map[string]bool{}
	for _, set := range sets {
		name, text, ok := strings.Cut(set, "=")
		name = strings.TrimSpace(name)
		if !ok {
			return nil, nil, usage(fmt.Errorf("sweep: --set %s: write KEY=VALUE, or KEY=A,B to try several", words.ShellQuote(words.Shorten(set))))
		}
		if seen[name] {
			return nil, nil, usage(fmt.Errorf("sweep: --set %s is given twice; list the values with commas", name))
		}
		seen[name] = true
		values := splitValues(text)
		if len(values) < 2 {
			fixed = append(fixed, set)
			continue
		}
		if name == "output_dir" {
			return nil, nil, usage(errors.New("sweep: --set output_dir: each run has a folder of its own; --out names the folder of them all"))
		}
		for _, v := range values {
			if v == "" {
				return nil, nil, usage(fmt.Errorf("sweep: --set %s: a value is missing between the commas", words.ShellQuote(words.Shorten(set))))
			}
		}
		grid = append(grid, dimension{name, values})
	}
	return fixed, grid, nil
}

// splitValues cuts at commas that stand in no brackets and no quotes.
func splitValues(text string) []string {
	var values []string
	depth, quote, from := 0, rune(0), 0
	for i, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case r == '[' || r == '{' || r == '(':
			depth++
		case r == ']' || r == '}' || r == ')':
			depth--
		case r == ',' && depth == 0:
			values = append(values, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	return append(values, strings.TrimSpace(text[from:]))
}

// combinations are all of the grid, the last key changing fastest, or a sample of them in that order.
func (o *sweepOptions) combinations(grid []dimension) ([][]string, error) {
	total := 1
	for _, d := range grid {
		if total *= len(d.values); total > 1<<20 {
			return nil, usage(errors.New("sweep: more than a million combinations; list fewer values"))
		}
	}
	var places []int
	if o.sample > 0 && o.sample < total {
		places = rand.New(rand.NewPCG(o.pick, 0)).Perm(total)[:o.sample]
		sort.Ints(places)
	} else {
		for i := range total {
			places = append(places, i)
		}
	}
	if n := len(places) * o.seeds; n > maxRuns {
		return nil, usage(fmt.Errorf("sweep: %d runs are more than %d; list fewer values, or give --sample", n, maxRuns))
	}
	var all [][]string
	for _, at := range places {
		values := make([]string, len(grid))
		for k := len(grid) - 1; k >= 0; k-- {
			d := grid[k]
			values[k] = d.key + "=" + d.values[at%len(d.values)]
			at /= len(d.values)
		}
		all = append(all, values)
	}
	return all, nil
}

// runName is a folder's name that every system takes: what it can't have is replaced, and then a hash tells it apart.
func runName(values []string, seed uint64, seeds bool) string {
	const most = 80
	var parts []string
	for _, v := range values {
		key, value, _ := strings.Cut(v, "=")
		parts = append(parts, key[strings.LastIndexByte(key, '.')+1:]+"="+value)
	}
	if seeds {
		parts = append(parts, "seed="+strconv.FormatUint(seed, 10))
	}
	whole := strings.Join(parts, "_")
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("=_-.+", r) {
			return r
		}
		return '-'
	}, whole)
	name = strings.TrimRight(name, ".")
	if name == whole && len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(whole))
	return strings.TrimRight(name[:min(len(name), most)], ".") + "-" + hex.EncodeToString(sum[:4])
}
