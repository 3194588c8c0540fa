package runs

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/train/hardware"
)

// HardwareSeries is one named number of a run's machine over time. X is in seconds, without the time between an
// interrupt and its resume.
type HardwareSeries struct {
	Name string
	X, Y []float64
}

// mostReadings is the largest number of different names that are read from hardware.jsonl.
const mostReadings = 200

// readings collects the lines of a hardware.jsonl.
type readings struct {
	run          *Run
	at           map[string]int // index of each name in run.Hardware
	offset, last float64        // seconds of the earlier processes, and of the line before
}

func newReadings(r *Run) *readings { return &readings{run: r, at: map[string]int{}} }

// take parses a line and reports whether it is valid.
func (g *readings) take(text []byte) bool {
	var l hardware.Line
	if len(bytes.TrimSpace(text)) == 0 {
		return true
	}
	if json.Unmarshal(text, &l) != nil || l.Format != 1 || !(l.Seconds >= 0 && l.Seconds < 1e10) {
		return false
	}
	if l.Seconds < g.last { // the line is from another process
		g.offset += g.last
	}
	g.last = l.Seconds
	for name, v := range l.Reading {
		i, ok := g.at[name]
		if !ok {
			if len(g.at) == mostReadings {
				continue
			}
			i = len(g.run.Hardware)
			g.at[name] = i
			g.run.Hardware = append(g.run.Hardware, HardwareSeries{Name: name})
		}
		s := &g.run.Hardware[i]
		s.X, s.Y = append(s.X, g.offset+l.Seconds), append(s.Y, v)
	}
	return true
}

// TabHardware is the name of the tab of the live page with the readings of the machine.
const TabHardware = "Hardware"

// hardwareUnit is the unit in which numbers whose names end in a suffix are drawn.
type hardwareUnit struct {
	suffix, unit string
	scale        float64
}

var hardwareUnits = []hardwareUnit{
	{"_bytes_per_second", "MiB/s", 1.0 / (1 << 20)}, {"_percent", "%", 1}, {"_bytes", "GiB", 1.0 / (1 << 30)}, {"_watts", "W", 1}, {"_celsius", "°C", 1},
}

// hardwarePlot is a plot with the names of the numbers that it draws and their labels.
type hardwarePlot struct {
	title, note string
	names       [][2]string
}

// hardwarePlots lists the plots of the machine's known numbers; the plots of cards come before them.
var hardwarePlots = []hardwarePlot{
	{"Processor", "the run: 100% is one core", [][2]string{{"cpu_percent", "whole machine"}, {"process_cpu_percent", "the run"}}},
	{"Memory of the machine", "", [][2]string{{"memory_bytes", "in use"}, {"process_memory_bytes", "the run"}, {"memory_total_bytes", "total"}}},
	{"Disk traffic of the run", "", [][2]string{{"process_disk_read_bytes_per_second", "read"}, {"process_disk_written_bytes_per_second", "written"}}},
	{"Free on the disk", "", [][2]string{{"disk_free_bytes", "free"}}},
}

// cardNumber matches the name of a number of a graphics card.
var cardNumber = regexp.MustCompile(`^gpu([0-9]{1,3})_([a-z_]+)$`)

// hardware draws the readings of the machine: a plot for each kind of number, with a curve for each card. A number of
// an unknown name has a plot of its own.
func (r *Run) hardware() []report.Block {
	all := slices.Clone(r.Hardware)
	slices.SortFunc(all, func(a, b HardwareSeries) int { return strings.Compare(a.Name, b.Name) })
	drawn := map[string]bool{}
	var blocks []report.Block
	plot := func(title, note string, names [][2]string) {
		p := report.Plot{Title: title, XLabel: "seconds", Note: note}
		for _, n := range names {
			for _, s := range all {
				if s.Name == n[0] && !drawn[s.Name] && len(s.X) > 0 {
					drawn[s.Name] = true
					unit, y := inUnit(s)
					p.YLabel = unit
					p.Series = append(p.Series, report.Series{Name: n[1], X: s.X, Y: y})
				}
			}
		}
		if p.Series != nil {
			blocks = append(blocks, p)
		}
	}
	for _, kind := range [][2]string{{"utilization_percent", "GPU utilisation"}, {"memory_bytes", "GPU memory in use"}, {"power_watts", "GPU power"}, {"temperature_celsius", "GPU temperature"}} {
		var names [][2]string
		for _, s := range all {
			if m := cardNumber.FindStringSubmatch(s.Name); m != nil && m[2] == kind[0] {
				names = append(names, [2]string{s.Name, "GPU " + m[1]})
			}
		}
		plot(kind[1], "", names)
	}
	for _, p := range hardwarePlots {
		plot(p.title, p.note, p.names)
	}
	for _, s := range all {
		if !drawn[s.Name] {
			plot(s.Name, "", [][2]string{{s.Name, s.Name}})
		}
	}
	return blocks
}

// inUnit returns a series in the unit that a reader sees.
func inUnit(s HardwareSeries) (unit string, y []float64) {
	for _, u := range hardwareUnits {
		if !strings.HasSuffix(s.Name, u.suffix) {
			continue
		}
		y = slices.Clone(s.Y)
		for i := range y {
			y[i] *= u.scale
		}
		return u.unit, y
	}
	return "", s.Y
}
