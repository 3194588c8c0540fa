package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// What the table of docs/CONTEXT.md has: one release on so many cards that share each row. Its positions are raised, as
// rotary scaling would, so that memory is what bounds a row.
const (
	contextRelease   = "meta-llama/Llama-3.1-8B"
	contextPositions = 1 << 20
)

var (
	contextCards   = []column{{"8", "4060"}, {"12", "3060"}, {"16", "4080"}, {"24", "4090"}, {"80", "h100"}}
	contextDevices = []int{1, 2, 4, 8}
)

// contextTable is the longest sequences whose tokens several cards share.
func contextTable(all []release, update string) error {
	var b strings.Builder
	b.WriteString("| Cards |")
	for _, c := range contextCards {
		fmt.Fprintf(&b, " %s GB |", c.gigabytes)
	}
	b.WriteString("\n|---:|" + strings.Repeat("---:|", len(contextCards)) + "\n")
	for _, r := range all {
		if r.Name != contextRelease {
			continue
		}
		var config map[string]any
		if err := json.Unmarshal(r.Config, &config); err != nil {
			return err
		}
		config["max_position_embeddings"] = contextPositions
		raw, err := json.Marshal(config)
		if err != nil {
			return err
		}
		r.Config = raw
		for _, devices := range contextDevices {
			line, err := r.contextRow(devices)
			if err != nil {
				return fmt.Errorf("%d cards: %w", devices, err)
			}
			fmt.Fprint(os.Stderr, line)
			b.WriteString(line)
		}
	}
	if update == "" {
		fmt.Print(b.String())
		return nil
	}
	return replaceTable(update, b.String())
}

func (r release) contextRow(devices int) (string, error) {
	of, done, err := r.search(1, []string{"all-linear"})
	if err != nil {
		return "", err
	}
	defer done()
	of.devices, of.share, of.lengths, of.bytes = devices, devices, lengths(contextPositions), map[try]int64{}
	line := fmt.Sprintf("| %d |", devices)
	for _, c := range contextCards {
		at, err := of.card(c.chip)
		if err != nil {
			return "", err
		}
		cell, err := at.sharedCell()
		if err != nil {
			return "", fmt.Errorf("%s GB: %w", c.gigabytes, err)
		}
		line += cell
	}
	return line + "\n", nil
}

// sharedCell is the longest sequence, and how the step is laid out for it: the first layout that fits, with the base
// whole on each card before those with slices.
func (c card) sharedCell() (string, error) {
	modes := []struct {
		mode graph.Recompute
		mark string
	}{{graph.KeepAll, "n"}, {graph.RecomputeCheap, "s"}, {graph.RecomputeLayers, "f"}, {graph.Offload, "o"}}
	lean := session.Layout{Recompute: graph.Offload, Shards: c.devices}
	low, high := 0, len(c.lengths) // the longest that fits is in [low, high)
	if ok, err := c.fits(c.lengths[0], lean); err != nil || !ok {
		return " – |", err
	}
	for high-low > 1 {
		middle := (low + high) / 2
		ok, err := c.fits(c.lengths[middle], lean)
		if err != nil {
			return "", err
		}
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	for _, shards := range []int{1, c.devices} {
		for _, m := range modes {
			ok, err := c.fits(c.lengths[low], session.Layout{Recompute: m.mode, Shards: shards})
			if err != nil {
				return "", err
			}
			if ok {
				if shards > 1 {
					m.mark += "b"
				}
				return fmt.Sprintf(" %d %s |", c.lengths[low], m.mark), nil
			}
		}
	}
	return " – |", nil
}
