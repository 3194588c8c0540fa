package queue

import "slices"

// Wants is what a run needs of its machine.
type Wants struct {
	Cards int   `json:"cards,omitempty"` // number of graphics cards; 0 = it trains on the CPU
	Bytes int64 `json:"bytes,omitempty"` // planned memory on each card in bytes; 0 = the whole card
}

// Card is a graphics card of the machine.
type Card struct {
	ID    string // name of the card in CUDA_VISIBLE_DEVICES
	Bytes int64  // memory of the card
}

// Other is a run in progress that no queue started, for example one in a terminal.
type Other struct {
	Dir   string   // its output folder
	Wants Wants    // Cards above 0 with an empty list of cards: it may use any of them
	Cards []string // cards that it uses
}

// Machine describes what the runs of a queue share. The zero value is a machine without graphics cards on which no
// other run trains.
type Machine struct {
	Cards  func() []Card
	Others func() []Other
}

func (m Machine) cards() []Card {
	if m.Cards == nil {
		return nil
	}
	return m.Cards()
}

func (m Machine) others() []Other {
	if m.Others == nil {
		return nil
	}
	return m.Others()
}

// held is the use of a card by runs.
type held struct {
	whole bool
	runs  int
	bytes int64
}

// choose returns the run that starts next and the cards that it gets; ok is false if no waiting run fits beside the
// running ones.
//
// One run trains on the CPU at a time. A run on cards gets unused cards, or, with a memory budget, cards whose runs all
// have budgets that fit together. Runs keep their turns: later runs may pass a run that does not fit only if they need
// the other kind of device, so that it gets the first device that becomes free. If the cards are not known, all runs
// take turns.
func choose(all []Entry, cards []Card, others []Other) (next Entry, on []string, ok bool) {
	onCards := func(w Wants) bool { return w.Cards > 0 && len(cards) > 0 }
	taken, processor := map[string]*held{}, false
	for _, c := range cards {
		taken[c.ID] = &held{}
	}
	hold := func(w Wants, ids []string) {
		if !onCards(w) {
			processor = true
			return
		}
		if len(ids) == 0 { // its cards are not known
			for _, h := range taken {
				h.whole = true
			}
		}
		for _, id := range ids {
			if h := taken[id]; h != nil {
				h.runs++
				h.bytes += w.Bytes
				h.whole = h.whole || w.Bytes <= 0
			}
		}
	}
	for _, e := range all {
		if e.State == Running {
			hold(e.Wants, e.Cards)
		}
	}
	for _, o := range others {
		if !slices.ContainsFunc(all, func(e Entry) bool { return e.State == Running && sameFolder(e.OutputDir, o.Dir) }) {
			hold(o.Wants, o.Cards)
		}
	}
	waits := false // a waiting run needs cards
	for _, e := range all {
		switch {
		case e.State != Waiting:
		case !onCards(e.Wants):
			if !processor {
				return e, nil, true
			}
			processor = true
		case !waits:
			if ids := fitting(e.Wants, cards, taken); ids != nil {
				return e, ids, true
			}
			waits = true
		}
	}
	return Entry{}, nil, false
}

// processBytes is the most memory that the driver takes on a card for each process in addition to its planned memory.
const processBytes = 600 << 20

// fitting returns the cards that a run gets, the fullest first, so that others stay unused; nil if there are not
// enough.
func fitting(w Wants, cards []Card, taken map[string]*held) []string {
	var fit []Card
	for _, c := range cards {
		h := taken[c.ID]
		alone := h.runs == 0 && !h.whole // a budget larger than any card is the run's own error
		if alone || w.Bytes > 0 && !h.whole && h.bytes+w.Bytes+int64(h.runs+1)*processBytes <= c.Bytes {
			fit = append(fit, c)
		}
	}
	need := min(w.Cards, len(cards)) // the run itself reports that it needs more cards than exist
	if len(fit) < need {
		return nil
	}
	slices.SortStableFunc(fit, func(a, b Card) int { return taken[b.ID].runs - taken[a.ID].runs })
	ids := []string{}
	for _, c := range fit[:need] {
		ids = append(ids, c.ID)
	}
	return ids
}
