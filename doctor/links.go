package doctor

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
)

// links judges the links between the cards that a run may train on together.
func (l *findings) links(f Facts, shown map[int]bool) {
	cards := map[int]graph.Card{}
	for _, c := range f.Cards {
		cards[c.Index] = c
		// If no link is up, the card is connected to no other.
		if shown[c.Index] && c.NVLinksDown > 0 && c.NVLinksDown < c.NVLinks {
			l.add(Warning, fmt.Sprintf("card %d NVLink", c.Index), "look at nvidia-smi nvlink -s and the kernel's log (Xid 74)", "%d of %d links are down", c.NVLinksDown, c.NVLinks)
		}
	}
	for _, c := range f.Cards {
		for _, to := range c.Links {
			if !shown[c.Index] || !shown[to.To] {
				continue
			}
			about := fmt.Sprintf("link of cards %d and %d", c.Index, to.To)
			says := c.PCIe.String()
			if other := cards[to.To].PCIe; other.Generation*other.Lanes < c.PCIe.Generation*c.PCIe.Lanes {
				says = other.String()
			}
			if to.Path != "" {
				says += ", " + to.Path
			}
			if to.NVLinks > 0 {
				says = fmt.Sprintf("%d NVLinks", to.NVLinks)
			}
			switch to.Access {
			case graph.CardAccess:
				l.add(OK, about, "", "%s, each reads the other's memory", says)
			case "":
				l.add(OK, about, "", "%s", says)
			default:
				l.add(Note, about, "equal numbers; slower where a step is short, or the base model in slices", "%s; they do not read one another's memory (P2P: %s): NCCL goes by the host's", says, to.Access)
			}
		}
	}
}
