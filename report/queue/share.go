package queue

import "slices"

// Wants is what a run needs of its machine.
type Wants struct {
	Cards int   `json:"cards,omitempty"` // graphics cards; 0 = it trains on the processor
	Bytes int64 `json:"bytes,omitempty"` // memory that it holds at most of each card; 0 = the whole card
}

// Card is a graphics card of the machine.
type Card struct {
	ID    string // as CUDA_VISIBLE_DEVICES names it
	Bytes int64  // of memory
}

// Other is a run on its way that no queue started, in a terminal say.
type Other struct {
	Dir   string   // its output folder
	Wants Wants    // Cards above 0 with an empty list of cards: it may hold any of them
	Cards []string // that it holds
}

// Machine is what the runs of a queue share. The zero value is a machine without graphics cards, on which nobody else
// trains.
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

// held is what runs hold of a card.
type held struct {
	whole bool
	runs  int
	bytes int64
}

// choose returns the run that starts next and the cards that it gets; ok is false where none fits beside what runs.
//
// One run trains on the processor at a time. A run on cards gets cards that nobody holds, or, with a budget of memory,
// cards whose runs all have budgets that fit together. Runs keep their turns: one that does not fit lets later runs
// pass only if they need the other kind, so that it gets what becomes free first. Without known cards all runs take
// turns.
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
		if len(ids) == 0 { // it is not known which
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
	waits := false // a run that needs cards
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

// processBytes is what the driver takes of a card for each process beside its planned memory, at most.
const processBytes = 600 << 20

// fitting returns the cards that a run gets, those that hold most already first, so that others stay whole; nil where
// there are not enough.
func fitting(w Wants, cards []Card, taken map[string]*held) []string {
	var fit []Card
	for _, c := range cards {
		h := taken[c.ID]
		alone := h.runs == 0 && !h.whole // a budget that no card holds is the run's own error
		if alone || w.Bytes > 0 && !h.whole && h.bytes+w.Bytes+int64(h.runs+1)*processBytes <= c.Bytes {
			fit = append(fit, c)
		}
	}
	need := min(w.Cards, len(cards)) // more than there are: the run itself says so
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
