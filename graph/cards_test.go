package graph_test

import (
	"testing"

	"github.com/tierlora/tierlora/graph"
)

// Cards are read or a reason is given; on a machine with a GPU each of its devices has a card.
func TestReadCards(t *testing.T) {
	cards, err := graph.ReadCards()
	if err != nil {
		if cards != nil || err.Error() == "" {
			t.Errorf("%d cards and %q", len(cards), err)
		}
		t.Skip("no cards to read: ", err)
	}
	n, _ := graph.GPUs()
	for i := range n {
		c, err := graph.CardOf(cards, i)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Logf("GPU %d: %+v", i, c)
		if c.Problem != "" || c.Total <= 0 || c.Used < 0 || c.Free <= 0 || c.Total < c.Used+c.Free || c.Driver == "" {
			t.Errorf("GPU %d: %+v", i, c)
		}
	}
}
