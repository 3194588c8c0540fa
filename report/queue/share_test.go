package queue

import (
	"fmt"
	"testing"
)

// TestChoose: which run starts next, and on which cards, beside what runs here and elsewhere.
func TestChoose(t *testing.T) {
	const gib = 1 << 30
	cards := []Card{{"A", 24 * gib}, {"B", 24 * gib}}
	run := func(name string, s State, w Wants, on ...string) Entry {
		return Entry{ID: name, State: s, Wants: w, Cards: on, OutputDir: "/none/" + name}
	}
	whole, ten, both := Wants{Cards: 1}, Wants{Cards: 1, Bytes: 10 * gib}, Wants{Cards: 2}
	for _, c := range []struct {
		name   string
		all    []Entry
		cards  []Card
		others []Other
		want   string
	}{
		{"nothing waits", []Entry{run("a", Running, Wants{})}, cards, nil, "no"},
		{"the first of the processor", []Entry{run("a", Waiting, Wants{}), run("b", Waiting, Wants{})}, cards, nil, "a[]"},
		{"the processor is busy", []Entry{run("a", Running, Wants{}), run("b", Waiting, Wants{})}, cards, nil, "no"},
		{"the processor is busy elsewhere", []Entry{run("b", Waiting, Wants{})}, cards, []Other{{Dir: "/none/x"}}, "no"},
		{"a run of the queue is nobody else's", []Entry{run("a", Running, ten, "A"), run("b", Waiting, Wants{})}, cards, []Other{{Dir: "/none/a"}}, "b[]"},
		{"a card beside the processor", []Entry{run("a", Running, Wants{}), run("b", Waiting, Wants{}), run("c", Waiting, whole)}, cards, nil, "c[A]"},
		{"the free card", []Entry{run("a", Running, whole, "A"), run("b", Waiting, whole)}, cards, nil, "b[B]"},
		{"no free card", []Entry{run("a", Running, whole, "A"), run("b", Running, whole, "B"), run("c", Waiting, ten)}, cards, nil, "no"},
		{"budgets share a card", []Entry{run("a", Running, ten, "A"), run("b", Waiting, ten)}, cards, nil, "b[A]"},
		{"three budgets are too many for a card", []Entry{run("a", Running, ten, "A"), run("b", Running, ten, "A"), run("c", Waiting, ten)}, cards, nil, "c[B]"},
		{"a whole card is not shared", []Entry{run("a", Running, ten, "A"), run("b", Running, ten, "B"), run("c", Waiting, whole)}, cards, nil, "no"},
		{"a budget above any card is the run's own error", []Entry{run("a", Waiting, Wants{Cards: 1, Bytes: 30 * gib})}, cards, nil, "a[A]"},
		{"budgets leave room for each process", []Entry{run("a", Running, Wants{Cards: 1, Bytes: 12 * gib}, "A"), run("b", Running, whole, "B"), run("c", Waiting, Wants{Cards: 1, Bytes: 12 * gib})}, cards, nil, "no"},
		{"both cards", []Entry{run("a", Waiting, both)}, cards, nil, "a[A B]"},
		{"more cards than there are", []Entry{run("a", Waiting, Wants{Cards: 99})}, cards, nil, "a[A B]"},
		{"turns are kept", []Entry{run("a", Running, whole, "A"), run("b", Waiting, both), run("c", Waiting, whole)}, cards, nil, "no"},
		{"the other kind passes", []Entry{run("a", Running, whole, "A"), run("b", Waiting, both), run("c", Waiting, Wants{})}, cards, nil, "c[]"},
		{"a card is held in a terminal", []Entry{run("a", Waiting, whole)}, cards, []Other{{Dir: "/none/x", Wants: whole, Cards: []string{"A"}}}, "a[B]"},
		{"some card is held in a terminal", []Entry{run("a", Waiting, ten)}, cards, []Other{{Dir: "/none/x", Wants: whole}}, "no"},
		{"no cards are known", []Entry{run("a", Running, whole), run("b", Waiting, whole)}, nil, nil, "no"},
		{"no cards are known, nothing runs", []Entry{run("b", Waiting, whole)}, nil, nil, "b[]"},
	} {
		e, on, ok := choose(c.all, c.cards, c.others)
		got := "no"
		if ok {
			got = e.ID + fmt.Sprint(on)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
