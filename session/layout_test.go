package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
)

// cost is what a made-up model of eight layers and four linear layers holds in a layout.
func cost(l Layout) graph.Bytes {
	b := graph.Bytes{Frozen: 100}
	switch {
	case l.Linears > 0:
		b.Frozen += 50 * int64(l.Linears)
	case l.Dequantised:
		b.Frozen += 200
	}
	if l.Recompute == graph.OffloadAttention && l.Layers > 0 {
		n := int64(l.Layers)
		return graph.Bytes{Frozen: b.Frozen, Arena: 9*n + 60*(8-n) + 64, Host: 30 * n}
	}
	layers := func(each, before int64) int64 {
		n := int64(8)
		if l.Layers > 0 {
			n = int64(l.Layers)
		}
		return n*each + (8-n)*before
	}
	switch l.Recompute {
	case graph.KeepAll:
		b.Arena = layers(100, 0)
	case graph.RecomputeCheap:
		b.Arena = layers(60, 100)
	case graph.RecomputeLayers:
		b.Arena = layers(20, 60)
		if l.Rest == graph.KeepAttention {
			b.Arena = layers(20, 30)
		}
	case graph.KeepAttention:
		b.Arena = layers(30, 60)
	case graph.OffloadAttention:
		b.Arena, b.Host = layers(9, 60), layers(30, 0)
	case graph.Offload:
		b.Arena, b.Host = layers(10, 20), layers(10, 0)
	}
	logits := int64(64)
	if l.LossRows > 0 {
		logits = int64(l.LossRows) / 4
	}
	b.Arena += logits
	if l.Overlap {
		b.Arena += b.Arena / 8
	}
	return b
}

// search tries all modes on the made-up model, and notes what it tried.
func search(limit int64, tried *[]Layout) Search[string] {
	return Search[string]{
		Layouts: []Layout{{Dequantised: true}, {}, {Recompute: graph.RecomputeCheap}, {Recompute: graph.RecomputeLayers}, {Recompute: graph.Offload}},
		Try: func(l Layout) (Planned[string], error) {
			*tried = append(*tried, l)
			return Planned[string]{l, cost(l), l.String()}, nil
		},
		Limit: limit, Layers: 8, Linears: []int64{1000, 1000, 1000, 1000}, LossRows: 256, Overlaps: true,
	}
}

// TestSearch: what is chosen for every amount of memory fits, is the first that does, and is no faster one's loss.
func TestSearch(t *testing.T) {
	for _, c := range []struct {
		limit int64
		want  string
		fits  bool
	}{
		{-1, "gradient_checkpointing none, dequantised weights", true},
		{5000, "gradient_checkpointing none, dequantised weights", true},
		{1150, "gradient_checkpointing none, dequantised weights in the first 3 linear layers", true},
		{1014, "gradient_checkpointing none, dequantised weights in the first 1 linear layers", true},
		{1000, "gradient_checkpointing none", true},
		{963, "gradient_checkpointing selective in the first 1 layers", true},
		{644, "gradient_checkpointing selective", true},
		{600, "gradient_checkpointing full in the first 2 layers", true},
		{324, "gradient_checkpointing full", true},
		{323, "gradient_checkpointing offload", true},
		{243, "gradient_checkpointing offload, the loss of 128 rows at a time", true},
		{200, "gradient_checkpointing offload, the loss of 64 rows at a time", true},
		{188, "gradient_checkpointing offload, the loss of 32 rows at a time", true},
		{187, "gradient_checkpointing offload, the loss of 32 rows at a time", false},
	} {
		var tried []Layout
		found, err := search(c.limit, &tried).Run()
		if err != nil {
			t.Fatal(err)
		}
		if found.Fits != c.fits || found.Layout.String() != c.want {
			t.Errorf("%d bytes: %v (fits: %v), want %v (%v)", c.limit, found.Layout, found.Fits, c.want, c.fits)
		}
		if found.Need.Total() != cost(found.Layout).Total() || c.fits && (c.limit >= 0 && found.Need.Total() > c.limit || found.Step == "") {
			t.Errorf("%d bytes: %v holds %d, with the step %q", c.limit, found.Layout, found.Need.Total(), found.Step)
		}
		for i, r := range found.Rejected {
			if r.Need.Total() <= c.limit || r.Need.Total() != cost(r.Layout).Total() {
				t.Errorf("%d bytes: rejected %d is %v, which holds %d", c.limit, i, r.Layout, r.Need.Total())
			}
		}
		again := slices.Clone(tried)
		tried = nil
		if second, err := search(c.limit, &tried).Run(); err != nil || second.Layout != found.Layout || !slices.Equal(tried, again) {
			t.Errorf("%d bytes: a second search found %v after %v", c.limit, second.Layout, tried)
		}
	}
}

// seconds is the estimated time of a step of the made-up model: recomputing a layer takes 10, without attention 7, and
// without all but what is cheap 1.
func seconds(layout string) float64 {
	each := func(mode string) float64 {
		switch {
		case strings.Contains(mode, "attention"):
			return 7
		case strings.Contains(mode, "full"), strings.Contains(mode, "offload"):
			return 10
		case strings.Contains(mode, "selective"):
			return 1
		}
		return 0
	}
	mode, rest, _ := strings.Cut(layout, "; ")
	n, of := 8.0, 0
	if _, after, ok := strings.Cut(mode, "first "); ok {
		if _, err := fmt.Sscan(after, &of); err != nil {
			panic(err)
		}
		n = float64(of)
	}
	return 100 + n*each(mode) + (8-n)*each(rest)
}

// TestSearchByTime: where the time of a step is estimated and whole layers would be recomputed, the outputs of attention
// are kept: in host memory, or on the device if the host has no room. That is also the leanest layout.
func TestSearchByTime(t *testing.T) {
	for _, c := range []struct {
		limit, host int64
		want        string
		rest        graph.Recompute
	}{
		{644, 0, "gradient_checkpointing selective", 0},
		{600, 0, "gradient_checkpointing offload with attention in the first 1 layers", graph.RecomputeCheap},
		{324, 0, "gradient_checkpointing offload with attention in the first 7 layers", graph.RecomputeCheap},
		{324, 100, "gradient_checkpointing full", 0},
		{344, 100, "gradient_checkpointing full in the first 6 layers", graph.KeepAttention},
		{434, 100, "gradient_checkpointing full without attention in the first 7 layers", graph.RecomputeCheap},
		{250, 0, "gradient_checkpointing offload with attention", 0},
		{250, 100, "gradient_checkpointing offload", 0},
		{240, 0, "gradient_checkpointing offload with attention", 0},
		{240, 100, "gradient_checkpointing offload, the loss of 128 rows at a time", 0},
		{230, 0, "gradient_checkpointing offload with attention, the loss of 128 rows at a time", 0},
	} {
		var tried []Layout
		s := search(c.limit, &tried)
		s.HostLimit = c.host
		plan := s.Try
		s.Try = func(l Layout) (Planned[string], error) {
			p, err := plan(l)
			p.Step += "; " + l.Rest.String()
			return p, err
		}
		s.Seconds = seconds
		found, err := s.Run()
		if err != nil || !found.Fits || found.Layout.String() != c.want || found.Layout.Rest != c.rest {
			t.Errorf("%d bytes, %d of the host: %v, %v for the others, %v; want %s, %v", c.limit, c.host, found.Layout,
				found.Layout.Rest, err, c.want, c.rest)
		}
	}
}

// TestSearchOverlaps: only where the machine can, where it fits, where it costs at most a sixth, and not in layouts
// that were chosen to save memory.
func TestSearchOverlaps(t *testing.T) {
	var tried []Layout
	for limit, want := range map[int64]bool{-1: true, 1300: true, 1180: false, 324: false} {
		found, err := search(limit, &tried).Run()
		if err != nil || found.Layout.Overlap != want {
			t.Errorf("%d bytes: %+v, %v", limit, found.Layout, err)
		}
	}
	for mode, want := range map[graph.Recompute]bool{graph.KeepAll: true, graph.RecomputeCheap: true, graph.RecomputeLayers: false, graph.Offload: false} {
		s := search(-1, &tried)
		s.Layouts = []Layout{{Recompute: mode}}
		if found, err := s.Run(); err != nil || found.Layout.Overlap != want {
			t.Errorf("%v alone: %+v, %v", mode, found.Layout, err)
		}
	}
	s := search(-1, &tried)
	s.Overlaps = false
	if found, err := s.Run(); err != nil || found.Layout.Overlap {
		t.Errorf("%+v, %v", found.Layout, err)
	}
	s = search(-1, &tried)
	try := s.Try
	s.Try = func(l Layout) (Planned[string], error) {
		p, err := try(l)
		if l.Overlap {
			p.Need.Arena *= 2
		}
		return p, err
	}
	if found, err := s.Run(); err != nil || found.Layout.Overlap {
		t.Errorf("overlap that doubles the memory was taken: %+v, %v", found.Layout, err)
	}
}

// TestSearchEndsWithTheError of the layout that could not be planned.
func TestSearchEndsWithTheError(t *testing.T) {
	broken := errors.New("broken")
	for n := range 8 {
		var tried []Layout
		s := search(190, &tried)
		try := s.Try
		s.Try = func(l Layout) (Planned[string], error) {
			if len(tried) == n {
				return Planned[string]{}, broken
			}
			return try(l)
		}
		if _, err := s.Run(); !errors.Is(err, broken) {
			t.Errorf("attempt %d: %v", n, err)
		}
	}
}

// TestLayoutNamesItsKeys: users read it beside the keys of the configuration.
func TestLayoutNamesItsKeys(t *testing.T) {
	l := Layout{Dequantised: true, Linears: 3, Recompute: graph.RecomputeLayers, Layers: 2, LossRows: 64, Overlap: true}
	want := "gradient_checkpointing full in the first 2 layers, dequantised weights in the first 3 linear layers, the loss of 64 rows at a time"
	l.Shards = 4
	want += ", base_sharding over 4 devices"
	if got := l.String(); got != want || strings.Contains(fmt.Sprint(Layout{}), "dequantised") {
		t.Errorf("%q, want %q; nothing asked for is %v", got, want, Layout{})
	}
}

// TestSearchOffloadsStates: states leave the machine's memory only where no layout fits with them, and then the fastest
// layout that fits without them is taken.
func TestSearchOffloadsStates(t *testing.T) {
	for _, c := range []struct {
		limit int64
		never bool
		want  string
		fits  bool
		host  int64
	}{
		{742, false, "gradient_checkpointing offload, the loss of 128 rows at a time", true, 499},
		{743, false, "gradient_checkpointing selective in the first 6 layers, optimizer_offload", true, 500},
		{1500, false, "gradient_checkpointing none", true, 0},
		{750, false, "gradient_checkpointing offload", true, 0},
		{744, false, "gradient_checkpointing offload", true, 0},
		{743, false, "gradient_checkpointing selective in the first 6 layers, optimizer_offload", true, 0},
		{643, false, "gradient_checkpointing full in the first 1 layers, optimizer_offload", true, 0},
		{243, false, "gradient_checkpointing offload, the loss of 128 rows at a time, optimizer_offload", true, 0},
		{187, false, "gradient_checkpointing offload, the loss of 32 rows at a time, optimizer_offload", false, 0},
		{742, true, "gradient_checkpointing offload, the loss of 128 rows at a time", true, 0},
		{500, true, "gradient_checkpointing offload, the loss of 32 rows at a time", false, 0},
	} {
		var tried []Layout
		s := search(c.limit, &tried)
		s.Layouts, s.Overlaps, s.Offload, s.HostLimit = s.Layouts[1:], false, !c.never, c.host
		try := s.Try
		s.Try = func(l Layout) (Planned[string], error) {
			p, err := try(l)
			if p.Need.State = map[string]int64{"m": 500}; l.OffloadStates {
				p.Need.State, p.Need.HostState = nil, p.Need.State
			} else {
				p.Need.Movable = 500
			}
			return p, err
		}
		found, err := s.Run()
		if err != nil || found.Fits != c.fits || found.Layout.String() != c.want {
			t.Errorf("%d bytes: %v (fits: %v, %v), want %v (%v)", c.limit, found.Layout, found.Fits, err, c.want,
				c.fits)
		}
		for _, r := range found.Rejected {
			if r.Need.Total() <= c.limit {
				t.Errorf("%d bytes: rejected %v, which holds %d", c.limit, r.Layout, r.Need.Total())
			}
		}
	}
}
