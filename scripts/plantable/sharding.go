package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// What the table of docs/SHARDING.md has: releases too large for one card of people's, with an adapter on all linear
// layers and on those that PEFT adapts of Llama by default, on so many cards of each size.
var (
	shardedReleases = []string{"meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-32B", "mistralai/Mixtral-8x7B-Instruct-v0.1",
		"meta-llama/Llama-3.3-70B-Instruct"}
	shardedTargets = []struct {
		name    string
		targets []string
	}{{"q_proj, v_proj", []string{"q_proj", "v_proj"}}, {"all-linear", []string{"all-linear"}}}
	shardedDevices = []int{2, 4, 8}
)

// shardingTable is the longest sequences with a base model in slices.
func shardingTable(all []release, only, update string) error {
	var b strings.Builder
	b.WriteString("| Release | `target_modules` | Cards |")
	sizes := cards[:slices.IndexFunc(cards, func(c column) bool { return c.gigabytes == "24" })+1]
	for _, c := range sizes {
		fmt.Fprintf(&b, " %s GB |", c.gigabytes)
	}
	b.WriteString("\n|---|---|---:|" + strings.Repeat("---:|", len(sizes)) + "\n")
	for _, r := range all {
		if !slices.Contains(shardedReleases, r.Name) || !strings.Contains(r.Name, only) {
			continue
		}
		for _, t := range shardedTargets {
			for _, devices := range shardedDevices {
				line, err := r.shardedRow(devices, t.targets, sizes)
				if err != nil {
					return fmt.Errorf("%s on %d cards: %w", r.Name, devices, err)
				}
				line = fmt.Sprintf("| %s | %s | %d |%s\n", r.Name, t.name, devices, line)
				fmt.Fprint(os.Stderr, line)
				b.WriteString(line)
			}
		}
	}
	if update == "" {
		fmt.Print(b.String())
		return nil
	}
	return replaceTable(update, b.String())
}

func (r release) shardedRow(devices int, targets []string, sizes []column) (line string, err error) {
	of, done, err := r.search(devices, targets)
	if err != nil {
		return "", err
	}
	defer done()
	for _, c := range sizes {
		cell, err := of.cell(c.chip)
		if err != nil {
			return "", fmt.Errorf("%s GB: %w", c.gigabytes, err)
		}
		line += cell
	}
	return line, nil
}
