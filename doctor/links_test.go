package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
)

// TestLinks: a line for every two cards that CUDA shows, and what is wrong with one.
func TestLinks(t *testing.T) {
	two := func(change func(c []graph.Card)) Facts {
		f := sound()
		other, gpu := f.Cards[0], f.Hardware.GPUs[0]
		other.Index, other.UUID, other.PCI = 1, "GPU-08080808-0707-0707-0707-070707070707", "00000000:65:00.0"
		gpu.Index, gpu.UUID, gpu.PCI = 1, "08080808-0707-0707-0707-070707070707", "0000:65:00.0"
		f.Cards, f.Hardware.GPUs = append(f.Cards, other), append(f.Hardware.GPUs, gpu)
		for i := range f.Cards {
			f.Cards[i].PCIe.Generation, f.Cards[i].PCIe.Lanes = 5, 16
		}
		f.Cards[0].Links = []graph.CardLink{{To: 1, NVLinks: 18, Path: "one processor", Access: graph.CardAccess}}
		change(f.Cards)
		return f
	}
	hidden := two(func([]graph.Card) {})
	hidden.Hardware.GPUs = hidden.Hardware.GPUs[:1]
	for name, c := range map[string]struct {
		facts Facts
		want  string // of what links and NVLinks are said
	}{
		"NVLink":       {two(func([]graph.Card) {}), "ok: link of cards 0 and 1: 18 NVLinks, each reads the other's memory"},
		"PCIe":         {two(func(c []graph.Card) { c[0].Links[0].NVLinks = 0 }), "ok: link of cards 0 and 1: PCIe 5.0 x16 (63 GB/s), one processor, each reads the other's memory"},
		"a slow slot":  {two(func(c []graph.Card) { c[0].Links[0].NVLinks, c[1].PCIe.Lanes = 0, 4 }), "ok: link of cards 0 and 1: PCIe 5.0 x4 (16 GB/s), one processor, each reads the other's memory"},
		"not told":     {two(func(c []graph.Card) { c[0].Links[0] = graph.CardLink{To: 1} }), "ok: link of cards 0 and 1: PCIe 5.0 x16 (63 GB/s)"},
		"no access":    {two(func(c []graph.Card) { c[0].Links[0].NVLinks, c[0].Links[0].Access = 0, "these cards cannot" }), "note: link of cards 0 and 1: PCIe 5.0 x16 (63 GB/s), one processor; they do not read one another's memory (P2P: these cards cannot): NCCL goes by the host's"},
		"links down":   {two(func(c []graph.Card) { c[1].NVLinks, c[1].NVLinksDown = 18, 2 }), "ok: link of cards 0 and 1: 18 NVLinks, each reads the other's memory\nwarning: card 1 NVLink: 2 of 18 links are down"},
		"no bridge":    {two(func(c []graph.Card) { c[1].NVLinks, c[1].NVLinksDown = 4, 4 }), "ok: link of cards 0 and 1: 18 NVLinks, each reads the other's memory"},
		"CUDA has one": {hidden, ""},
	} {
		var said []string
		for _, f := range Judge(c.facts) {
			if strings.Contains(f.About, "link") || strings.Contains(f.About, "NVLink") {
				said = append(said, fmt.Sprintf("%s: %s: %s", f.Severity, f.About, f.Says))
			}
		}
		got := strings.Join(said, "\n")
		same := len(got) == len(c.want)
		for _, line := range strings.Split(c.want, "\n") {
			same = same && strings.Contains(got, line)
		}
		if !same {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
}
