package tier

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/regular"
)

// Tolerances by which a figure may exceed those of kept reports. With one kept report the tolerance is a share of its
// figure; with several it is the difference between them, but at least the floor. Planned bytes are exact, so any
// increase is a regression.
const (
	timeShare, timeFloor = 0.05, 0.01
	lossShare, lossFloor = 0.02, 0.005
)

const (
	maxKept       = 200      // largest number of reports that are read
	maxReportSize = 64 << 20 // largest size of one report
)

// compare compares a tier that passed with kept reports.
func compare(r *runner, now Result) *Comparison {
	c := &Comparison{Kept: []Kept{}, Lines: []Line{}}
	machine, program := r.report.Machine, r.About.SHA256
	paths, notes := reports(r.Kept, r.Dir)
	c.Notes = notes
	for _, path := range paths {
		kept, note := keptOf(path, machine, now)
		if note != "" {
			c.Notes = append(c.Notes, plain(path)+": "+plain(note))
		}
		if kept != nil {
			c.Kept = append(c.Kept, *kept)
		}
	}
	slices.SortStableFunc(c.Kept, func(a, b Kept) int { return strings.Compare(b.Time+b.Report, a.Time+a.Report) })
	if len(c.Kept) == 0 {
		return c
	}
	was := c.Kept[0]
	c.line("median step in ms", now.Throughput.MedianMs, was.MedianMs, timeShare, timeFloor, func(k Kept) float64 { return k.MedianMs })
	c.line("loss, mean of the last tenth", now.Loss.LastTenth, was.LossEnd, lossShare, lossFloor, func(k Kept) float64 { return k.LossEnd })
	c.line("held bytes", float64(now.Memory.Held), float64(was.Held), 0, 0, func(k Kept) float64 { return float64(k.Held) })
	if i := slices.IndexFunc(c.Kept, func(k Kept) bool { return k.ProgramSHA256 == program && k.made == madeBy(now) }); i >= 0 && c.Kept[i].LossesSHA256 != now.Manifest.Losses {
		c.Regressions = append(c.Regressions, fmt.Sprintf("the losses differ from those of %s, which the same program made with the same libraries: they should be equal bit for bit", c.Kept[i].Report))
	}
	return c
}

// others returns the regressions that no line shows.
func (c *Comparison) others() []string {
	return slices.DeleteFunc(slices.Clone(c.Regressions), func(r string) bool {
		return slices.ContainsFunc(c.Lines, func(l Line) bool { return strings.HasPrefix(r, l.What+": ") })
	})
}

// line compares one figure.
func (c *Comparison) line(what string, now, was, share, floor float64, of func(Kept) float64) {
	least, most := math.Inf(1), math.Inf(-1)
	for _, k := range c.Kept {
		least, most = min(least, of(k)), max(most, of(k))
	}
	l := Line{What: what, Now: now, Was: was, Of: len(c.Kept)}
	switch {
	case floor == 0:
		l.Limit, l.Rule = was, "no more than the last"
	case len(c.Kept) == 1:
		l.Limit, l.Rule = was*(1+share), fmt.Sprintf("%.3g%% above the one kept", 100*share)
	default:
		l.Limit, l.Rule = most+max(most-least, floor*most), fmt.Sprintf("above the most of %d kept by what they differ by, at least %.3g%%", len(c.Kept), 100*floor)
	}
	if l.OK = now <= l.Limit; !l.OK {
		c.Regressions = append(c.Regressions, fmt.Sprintf("%s: %s, was %s, at most %s (%s)", what, Figure(now), Figure(was), Figure(l.Limit), l.Rule))
	}
	c.Lines = append(c.Lines, l)
}

// Figure formats a number of a Line: a count with all its digits, any other number with six.
func Figure(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1<<53 {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return strconv.FormatFloat(x, 'g', 6, 64)
}

// madeBy returns what decides the last bits of a run, besides the program.
func madeBy(r Result) string {
	if r.Manifest == nil {
		return ""
	}
	data, err := json.Marshal(r.Manifest.Software)
	if err != nil {
		return ""
	}
	return r.Manifest.Device + r.Manifest.Precision + r.Manifest.Plan + string(data)
}

// reports returns the files of kept reports: those named, and those in folders below the named ones, without own.
func reports(kept []string, own string) (paths, notes []string) {
	add := func(path string) {
		if abs, err := filepath.Abs(path); err != nil || filepath.Dir(abs) == own || slices.Contains(paths, path) {
			return
		}
		paths = append(paths, path)
	}
	for _, k := range kept {
		info, err := os.Stat(k)
		if err != nil {
			notes = append(notes, plain(err.Error()))
			continue
		}
		if !info.IsDir() {
			add(k)
			continue
		}
		if _, err := os.Stat(filepath.Join(k, ReportJSON)); err == nil {
			add(filepath.Join(k, ReportJSON))
		}
		found, err := filepath.Glob(filepath.Join(escapeGlob(k), "*", ReportJSON))
		if err != nil {
			notes = append(notes, plain(err.Error()))
		}
		for _, path := range found {
			add(path)
		}
	}
	if over := len(paths) - maxKept; over > 0 { // names are times, so the newest are last
		notes = append(notes, fmt.Sprintf("%d older reports were not read", over))
		paths = paths[over:]
	}
	return paths, notes
}

// escapeGlob returns a pattern that only matches the given folder's name.
func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}

// keptOf returns the figures of a tier in a report file; nil if the file has nothing comparable, with the reason if
// that is worth reporting.
func keptOf(path string, machine Machine, now Result) (*Kept, string) {
	p, err := readReport(path)
	if err != nil {
		return nil, "can't be read: " + err.Error()
	}
	for _, t := range p.Tiers {
		switch {
		case t.Tier != now.Tier || t.Status != Pass || t.Throughput == nil || t.Loss == nil || t.Manifest == nil || t.Memory == nil:
			continue
		case now.GPU && p.Machine.GPU != machine.GPU || !now.GPU && (p.Machine.Platform != machine.Platform || p.Machine.Cores != machine.Cores):
			continue
		case t.BaseSHA256 != now.BaseSHA256:
			continue
		case t.ConfigSHA256 != now.ConfigSHA256:
			return nil, "it ran " + t.Tier + " in another configuration"
		}
		return &Kept{Report: plain(path), Time: p.Time, ProgramSHA256: p.Program.SHA256, MedianMs: t.Throughput.MedianMs, LossEnd: t.Loss.LastTenth, Held: t.Memory.Held,
			LossesSHA256: t.Manifest.Losses, made: madeBy(t)}, ""
	}
	return nil, ""
}

// readReport reads a report.json, which may be damaged or come from another program.
func readReport(path string) (p Report, err error) {
	f, err := regular.Open(path)
	if err != nil {
		return p, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxReportSize+1))
	if err == nil && len(data) > maxReportSize {
		err = fmt.Errorf("more than %d bytes", maxReportSize)
	}
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err == nil && p.Schema != Schema {
		err = errors.New("it is no report of this form, " + Schema)
	}
	return p, err
}
