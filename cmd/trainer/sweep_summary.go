package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/report/runs"
)

// sweepFile is the summary in the folder of a sweep.
const sweepFile = "sweep.json"

// sweepSummary is what came of a sweep.
type sweepSummary struct {
	Dir    string       `json:"dir"`
	By     string       `json:"sorted_by"` // eval_loss, or train_loss_smoothed where no run has held-out rows
	Failed int          `json:"failed"`
	Groups []sweepGroup `json:"combinations"` // the best first
	Runs   []*sweepRun  `json:"runs"`         // in the order of the grid
}

// sweepGroup is a combination under its seeds.
type sweepGroup struct {
	Values []string `json:"values"`
	Runs   []string `json:"runs"`
	Mean   *float64 `json:"mean,omitempty"`               // of the finished runs
	Spread *float64 `json:"standard_deviation,omitempty"` // over seeds, where two and more finished
	Least  *float64 `json:"min,omitempty"`
	Most   *float64 `json:"max,omitempty"`
}

// summarise sorts the combinations by their loss; those without one come last.
func summarise(dir string, all []*sweepRun) sweepSummary {
	s := sweepSummary{Dir: dir, By: "train_loss_smoothed", Runs: all}
	for _, r := range all {
		if r.EvalLoss != nil {
			s.By = "eval_loss"
		}
		if r.Status == string(runs.Failed) {
			s.Failed++
		}
	}
	byValues := map[string]int{}
	losses := map[int][]float64{}
	for _, r := range all {
		name := strings.Join(r.Values, "\x00")
		i, ok := byValues[name]
		if !ok {
			i = len(s.Groups)
			byValues[name] = i
			s.Groups = append(s.Groups, sweepGroup{Values: r.Values})
		}
		s.Groups[i].Runs = append(s.Groups[i].Runs, r.Name)
		loss := r.TrainLoss
		if s.By == "eval_loss" {
			loss = r.EvalLoss
		}
		if loss != nil && r.Status == string(runs.Finished) {
			losses[i] = append(losses[i], *loss)
		}
	}
	for i := range s.Groups {
		s.Groups[i].measure(losses[i])
	}
	sort.SliceStable(s.Groups, func(a, b int) bool {
		x, y := s.Groups[a].Mean, s.Groups[b].Mean
		return x != nil && (y == nil || *x < *y)
	})
	return s
}

// measure works out mean, range and the sample's standard deviation.
func (g *sweepGroup) measure(losses []float64) {
	if len(losses) == 0 {
		return
	}
	least, most, sum := losses[0], losses[0], 0.0
	for _, l := range losses {
		least, most, sum = math.Min(least, l), math.Max(most, l), sum+l
	}
	mean := sum / float64(len(losses))
	g.Mean, g.Least, g.Most = &mean, &least, &most
	if len(losses) > 1 {
		squares := 0.0
		for _, l := range losses {
			squares += (l - mean) * (l - mean)
		}
		spread := math.Sqrt(squares / float64(len(losses)-1))
		g.Spread = &spread
	}
}

func (s *sweepSummary) save() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = atomicfile.Write(filepath.Join(s.Dir, sweepFile), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", sweepFile, err)
	}
	return nil
}

// print writes the combinations as a table, and the runs that failed.
func (s *sweepSummary) print(out io.Writer) error {
	w := bufio.NewWriter(out)
	what := "held-out loss"
	if s.By != "eval_loss" {
		what = "training loss (no run has held-out rows: dataset.val_split)"
	}
	fmt.Fprintf(w, "sorted by %s\n", what)
	for i, g := range s.Groups {
		loss := "none finished"
		if g.Mean != nil {
			loss = fmt.Sprintf("%.4f", *g.Mean)
			if g.Spread != nil {
				loss += fmt.Sprintf(" ± %.4f (%.4f to %.4f, %d seeds)", *g.Spread, *g.Least, *g.Most, len(g.Runs))
			}
		}
		fmt.Fprintf(w, "%3d  %s  %s\n", i+1, loss, safetext.OneLine(strings.Join(g.Values, " ")))
	}
	for _, r := range s.Runs {
		if r.Status != string(runs.Finished) {
			fmt.Fprintf(w, "%s  %s: %s\n", r.Status, r.Name, safetext.OneLine(r.Problem))
		}
	}
	fmt.Fprintf(w, "summary  %s\npage     trainer report %s\n", filepath.Join(s.Dir, sweepFile), words.ShellQuote(s.Dir))
	return w.Flush()
}

// runFolders are the runs that folders on the command line stand for: one of a run itself, one of a sweep its runs that have
// begun, any other one the runs below it. found tells those that were looked for from those that were named.
func runFolders(dirs []string) (all []string, found map[string]bool, err error) {
	found = map[string]bool{}
	add := func(dir string, looked bool) {
		if !slices.Contains(all, dir) {
			all = append(all, dir)
			found[dir] = looked
		}
	}
	for _, dir := range dirs {
		dir = filename.ExpandHome(dir)
		names, err := sweepRuns(dir)
		if err != nil {
			return nil, nil, err
		}
		if names == nil && !runs.IsRun(dir) {
			names = runs.Find([]string{dir}, mostReported+1)
		}
		for _, one := range names {
			add(one, true)
		}
		if len(names) == 0 {
			add(dir, false)
		}
	}
	return all, found, nil
}

// sweepRuns are the runs of a sweep's folder that have begun; nil of any other folder.
func sweepRuns(dir string) ([]string, error) {
	path := filepath.Join(dir, sweepFile)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil, nil //nolint:nilerr // no sweep's
	}
	text, err := readBounded(path, config.MaxBytes)
	if err != nil {
		return nil, err
	}
	var s struct {
		Runs []struct{ Name string }
	}
	if err := json.Unmarshal(text, &s); err != nil || len(text) > config.MaxBytes {
		return nil, fmt.Errorf("%s is not what trainer sweep writes", path)
	}
	all := []string{}
	for _, r := range s.Runs {
		if !filepath.IsLocal(r.Name) || r.Name != filepath.Base(r.Name) {
			return nil, fmt.Errorf("%s names %q, which is no folder beside it", path, words.Shorten(r.Name))
		}
		if one := filepath.Join(dir, r.Name); runs.IsRun(one) {
			all = append(all, one)
		}
	}
	return all, nil
}
