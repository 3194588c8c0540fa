package ranks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is for what has to happen soon on a machine that does much else.
const patience = 20 * time.Second

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// joinAll makes a group of processes with so many ranks each. at, if it is not nil, gives where a process looks for rank 0.
func joinAll(t *testing.T, o Options, at func(process int, coordinator string) string, ranks ...int) [][]Group {
	t.Helper()
	coordinator := freePort(t)
	groups, errs := make([][]Group, len(ranks)), make([]error, len(ranks))
	var wait sync.WaitGroup
	for i, n := range ranks {
		wait.Go(func() {
			p, o := Place{Rank: i, World: len(ranks), LocalRank: i, LocalWorld: len(ranks), Coordinator: coordinator, Run: "a"}, o
			if at != nil && i > 0 {
				p.Coordinator = at(i, coordinator)
			}
			o.Ranks = n
			groups[i], errs[i] = Join(context.Background(), p, o)
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, g := range groups {
			for _, r := range g {
				r.Leave(errors.New("the test is over")) //nolint:errcheck // for those that have not
			}
		}
	})
	return groups
}

func flat(groups [][]Group) (all []Group) {
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// each runs work of every rank at the same time.
func each(all []Group, work func(g Group) error) []error {
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, g := range all {
		wait.Go(func() { errs[i] = work(g) })
	}
	wait.Wait()
	return errs
}

func TestGather(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<15)
	for _, ranks := range [][]int{{1}, {3}, {1, 1}, {1, 1, 1, 1}, {2, 1, 3}, {1, 2}} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			t.Parallel()
			groups := joinAll(t, Options{Timeout: patience}, nil, ranks...)
			all := flat(groups)
			for i, g := range all {
				if g.Rank() != i || g.World() != len(all) {
					t.Fatalf("rank %d of %d at place %d of %d", g.Rank(), g.World(), i, len(all))
				}
			}
			err := errors.Join(each(all, func(g Group) error {
				mine := make([]byte, 0, 4<<20)
				for round := range 20 {
					g.At(round+1, "gradients")
					mine = append(mine[:0], fmt.Sprintf("%d of rank %d", round, g.Rank())...)
					if round%7 == g.Rank() {
						mine = append(mine, big...)
					}
					if round%5 == 4 {
						mine = mine[:0]
					}
					got, err := g.Gather(context.Background(), "gradients", mine)
					if err != nil {
						return err
					}
					for r, part := range got {
						want := fmt.Sprintf("%d of rank %d", round, r)
						if round%7 == r {
							want += string(big)
						}
						if round%5 == 4 {
							want = ""
						}
						if string(part) != want {
							return fmt.Errorf("round %d: rank %d has %.40q of rank %d, %d bytes; want %.40q", round, g.Rank(), part, r, len(part), want)
						}
					}
				}
				return g.Leave(nil)
			})...)
			if err != nil {
				t.Error(err)
			}
			for _, g := range all {
				if g.Err() != nil {
					t.Errorf("after the end: %v", g.Err())
				}
			}
		})
	}
}

// lostTo checks what every rank but those in gone hears, and that it hears it soon.
func lostTo(t *testing.T, all []Group, gone []int, want ...string) {
	t.Helper()
	deadline := time.After(patience)
	for _, g := range all {
		heard := true
		for _, r := range gone {
			heard = heard && g.Rank() != r
		}
		if !heard {
			continue
		}
		select {
		case <-g.Lost():
		case <-deadline:
			t.Fatalf("rank %d hears nothing", g.Rank())
		}
		lost := (*LostError)(nil)
		if err := g.Err(); !errors.As(err, &lost) {
			t.Errorf("rank %d: %v is no LostError", g.Rank(), err)
		} else {
			for _, w := range want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("rank %d: %q lacks %q", g.Rank(), err, w)
				}
			}
		}
		if _, err := g.Gather(context.Background(), "gradients", nil); err == nil {
			t.Errorf("rank %d gathers on", g.Rank())
		}
	}
}

// cut closes a process's connection as the end of the process would.
func cut(g Group) { g.(*participant).s.way.(*spoke).link.conn.Close() }

func TestFaults(t *testing.T) {
	second := Options{Timeout: time.Second, long: time.Second}
	step := func(g Group, n int) error {
		g.At(n, "forward and backward")
		_, err := g.Gather(context.Background(), "gradients", []byte{1})
		return err
	}
	t.Run("a process ends", func(t *testing.T) {
		t.Parallel()
		all := flat(joinAll(t, Options{Timeout: patience}, nil, 1, 1, 1))
		each(all, func(g Group) error {
			if g.Rank() == 2 {
				g.At(7, "forward and backward")
				g.(*participant).s.way.beat()
				time.Sleep(100 * time.Millisecond)
				cut(g)
				return nil
			}
			return step(g, 7)
		})
		lostTo(t, all, []int{2}, "rank 2, step 7, forward and backward: the connection was closed")
	})
	t.Run("rank 0 ends", func(t *testing.T) {
		t.Parallel()
		all := flat(joinAll(t, Options{Timeout: patience}, nil, 1, 1, 1))
		each(all, func(g Group) error {
			if g.Rank() == 0 { // whose process says nothing any more
				s := g.(*participant).s
				s.mu.Lock()
				s.err = &LostError{Why: "the process is gone"}
				s.mu.Unlock()
				for _, l := range g.(*participant).s.way.(*hub).links[1:] {
					l.conn.Close()
				}
				return nil
			}
			return step(g, 3)
		})
		lostTo(t, all, []int{0}, "rank 0, step 0, starting: the connection was closed")
	})
	t.Run("an error of a rank of two in its process", func(t *testing.T) {
		t.Parallel()
		for _, at := range []int{0, 1, 3} { // at the coordinator, beside it, and elsewhere
			all := flat(joinAll(t, Options{Timeout: patience}, nil, 2, 2))
			each(all, func(g Group) error {
				if g.Rank() == at {
					g.At(4, "save")
					return g.Leave(errors.New("disk\nfull"))
				}
				err := step(g, 4)
				g.Leave(err) //nolint:errcheck // it is lost
				return nil
			})
			lostTo(t, all, []int{at}, fmt.Sprintf("rank %d, step 4, save: disk full", at))
		}
	})
	t.Run("a rank that does not get on", func(t *testing.T) {
		t.Parallel()
		for _, at := range []int{0, 1} {
			all := flat(joinAll(t, second, nil, 1, 1))
			each(all, func(g Group) error {
				if g.Rank() == at {
					g.At(5, "forward and backward")
					<-g.Lost()
					return nil
				}
				return step(g, 5)
			})
			lostTo(t, all, nil, fmt.Sprintf("rank %d, step 5, forward and backward: others have waited for it in \"gradients\" for 1", at), "does not get on")
		}
	})
	t.Run("a slow rank that gets on", func(t *testing.T) {
		t.Parallel()
		all := flat(joinAll(t, Options{Timeout: time.Second}, nil, 1, 1))
		err := errors.Join(each(all, func(g Group) error {
			for i := range 8 {
				if g.Rank() == 1 {
					g.At(1, fmt.Sprintf("micro-batch %d", i))
					time.Sleep(200 * time.Millisecond)
				}
			}
			return errors.Join(step(g, 1), g.Leave(nil))
		})...)
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("before the first step", func(t *testing.T) {
		t.Parallel()
		all := flat(joinAll(t, Options{Timeout: 300 * time.Millisecond}, nil, 1, 1))
		err := errors.Join(each(all, func(g Group) error {
			if g.Rank() == 1 {
				time.Sleep(800 * time.Millisecond)
			}
			_, err := g.Gather(context.Background(), "start", nil)
			return errors.Join(err, g.Leave(nil))
		})...)
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("a lost link", func(t *testing.T) {
		t.Parallel()
		var through *valve
		all := flat(joinAll(t, second, func(process int, coordinator string) string {
			if process != 1 {
				return coordinator
			}
			through = newValve(t, coordinator)
			return through.address
		}, 1, 1, 1))
		if err := errors.Join(each(all, func(g Group) error { return step(g, 1) })...); err != nil {
			t.Fatal(err)
		}
		through.shut()
		lostTo(t, all, []int{1}, "rank 1, step 1, forward and backward: it does not answer since 1s")
		lostTo(t, all[1:2], nil, "rank 0, step 1, forward and backward: it does not answer since 1s")
	})
	t.Run("ranks that are out of step", func(t *testing.T) {
		t.Parallel()
		all := flat(joinAll(t, Options{Timeout: patience}, nil, 1, 2))
		each(all, func(g Group) error {
			what := "gradients"
			if g.Rank() == 2 {
				time.Sleep(100 * time.Millisecond)
				what = "evaluation"
			}
			_, err := g.Gather(context.Background(), what, nil)
			return err
		})
		lostTo(t, all, nil, `rank 2`, `it came to "evaluation" where rank`, "out of step")
	})
	t.Run("one has ended and others have not", func(t *testing.T) {
		t.Parallel()
		for _, at := range []int{0, 1} {
			all := flat(joinAll(t, Options{Timeout: patience}, nil, 1, 1, 1))
			errs := each(all, func(g Group) error {
				if g.Rank() == at {
					return g.Leave(nil)
				}
				return step(g, 9)
			})
			for r, err := range errs {
				if r != at && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("rank %d", at)) || !strings.Contains(err.Error(), "has ended")) {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		}
	})
	t.Run("a gather that its caller gives up", func(t *testing.T) {
		t.Parallel()
		all := flat(joinAll(t, Options{Timeout: patience}, nil, 1, 1))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := all[1].Gather(ctx, "gradients", nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// valve forwards bytes between two ends until it is shut: then both are silent, and no connection closes.
type valve struct {
	address string
	closed  chan struct{}
}

func (v *valve) shut() { close(v.closed) }

func newValve(t *testing.T, to string) *valve {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		return nil
	}
	v := &valve{l.Addr().String(), make(chan struct{})}
	over := make(chan struct{})
	t.Cleanup(func() { close(over); l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			go func() { <-over; near.Close(); far.Close() }()
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					b := make([]byte, 64<<10)
					for {
						n, err := way[0].Read(b)
						select {
						case <-v.closed:
							<-over
							return
						default:
						}
						if n > 0 {
							if _, werr := way[1].Write(b[:n]); werr != nil {
								err = werr
							}
						}
						if err != nil {
							way[1].Close()
							return
						}
					}
				}()
			}
		}
	}()
	return v
}
