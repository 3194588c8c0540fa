package ranks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// TestLocalGather: every rank gets what all sent, round after round.
func TestLocalGather(t *testing.T) {
	groups := NewLocal(5)
	var all sync.WaitGroup
	for r, g := range groups {
		all.Go(func() {
			for round := range 200 {
				got, err := g.Gather(context.Background(), "numbers", fmt.Append(nil, r, round))
				if err != nil {
					t.Error(err)
					return
				}
				for q, theirs := range got {
					if string(theirs) != string(fmt.Append(nil, q, round)) {
						t.Errorf("rank %d, round %d: rank %d sent %s", r, round, q, theirs)
					}
				}
			}
			g.Leave(nil)
		})
	}
	all.Wait()
}

// TestLocalEnds: a rank that fails, ends early or does something else ends the others, who say which and where it was.
func TestLocalEnds(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(Group)
		want  string
	}{
		"fails": {func(g Group) { g.Leave(errors.New("disk full")) }, "rank 1, step 7, saving: disk full"},
		"ends":  {func(g Group) { g.Leave(nil) }, "rank 1, step 7, saving: it has ended"},
		"other": {func(g Group) { g.Gather(context.Background(), "losses", nil) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			groups := NewLocal(3)
			groups[1].At(7, "saving")
			var others sync.WaitGroup
			for _, r := range []int{0, 2} {
				others.Go(func() {
					_, err := groups[r].Gather(context.Background(), "gradients", nil)
					var lost *LostError
					if !errors.As(err, &lost) || c.want != "" && err.Error() != c.want || !errors.Is(groups[r].Err(), err) {
						t.Errorf("rank %d: %v, want %s", r, err, c.want)
					}
					<-groups[r].Lost()
				})
			}
			c.leave(groups[1])
			others.Wait()
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := NewLocal(2)[0].Gather(ctx, "gradients", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
