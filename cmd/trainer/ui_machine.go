package main

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/report/queue"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// wantsOf returns what a run needs of its machine: the graphics cards that it trains on, and its budget of memory.
func wantsOf(s train.Spec) queue.Wants {
	if kind, err := graph.DeviceKind(s.Device); err != nil || kind != "cuda" {
		return queue.Wants{}
	}
	w := queue.Wants{Cards: 1}
	if s.Devices != "" {
		n, err := strconv.Atoi(s.Devices)
		if err != nil || n < 1 {
			n = train.MaxDevices // named one by one, or all: the run gets every card
		}
		w.Cards = n
	}
	if s.VRAM != "" {
		if n, err := session.ParseBytes(s.VRAM); err == nil {
			w.Bytes = n
		}
	}
	return w
}

// machineOf describes this machine to a queue, with the active runs in the given folders.
func machineOf(roots []string) queue.Machine {
	return queue.Machine{
		Cards: func() []queue.Card {
			cards, _ := graph.ReadCards() // none in a CPU-only build, or without NVML
			return visibleCards(cards, os.Getenv("CUDA_VISIBLE_DEVICES"))
		},
		Others: func() []queue.Other {
			var all []queue.Other
			var cards []graph.Card
			for i, r := range runs.Busy(roots) {
				if i == 0 {
					cards, _ = graph.ReadCards()
				}
				o := queue.Other{Dir: r.Dir}
				if !strings.HasPrefix(r.Device, "cpu") {
					o.Wants = queue.Wants{Cards: 1, Bytes: r.Limit}
					for _, c := range cards {
						if slices.ContainsFunc(c.Processes, func(p graph.CardProcess) bool { return p.PID == r.PID }) {
							o.Cards = append(o.Cards, c.UUID)
						}
					}
				}
				all = append(all, o)
			}
			return all
		},
	}
}

// visibleCards returns the cards that CUDA_VISIBLE_DEVICES leaves, by their UUIDs. A card that has a problem is left
// out.
func visibleCards(cards []graph.Card, visible string) []queue.Card {
	var all []queue.Card
	add := func(c graph.Card) {
		if c.Problem == "" && c.UUID != "" {
			all = append(all, queue.Card{ID: c.UUID, Bytes: c.Total - c.Reserved})
		}
	}
	if visible == "" {
		for _, c := range cards {
			add(c)
		}
		return all
	}
	for _, name := range strings.Split(visible, ",") {
		name = strings.TrimSpace(name)
		at := slices.IndexFunc(cards, func(c graph.Card) bool {
			return strconv.Itoa(c.Index) == name || name != "" && strings.HasPrefix(c.UUID, name)
		})
		if at < 0 {
			break // as CUDA does: entries after an invalid one are ignored
		}
		add(cards[at])
	}
	return all
}
