package ranks

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// spoke is a process's connection to the coordinator.
type spoke struct {
	*session
	process int // number of the process
	link    *link
	start   chan struct{} // closed when every process has joined
	hub     status        // last reported status of rank 0; used only by the reader
}

func (p *spoke) offer(m *participant, seq uint64, what string, data []byte) {
	p.link.send(frame{kind: kindBeat, data: packStatus(p.statuses())}) // its status when the connection ends now
	p.link.send(frame{kind: kindPart, rank: m.Rank(), seq: seq, what: what, data: slices.Clone(data)})
}

func (p *spoke) broke(m *participant, e *LostError) {
	if m != nil {
		p.link.send(frame{kind: kindLeave, rank: m.Rank(), data: e.encode()})
	}
}

func (p *spoke) leave(m *participant, _ bool) { p.link.send(frame{kind: kindLeave, rank: m.Rank()}) }

func (p *spoke) beat() { p.link.beat(frame{kind: kindBeat, data: packStatus(p.statuses())}) }

func (p *spoke) close() {
	p.link.end()
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	p.link.await(ctx.Done())
}

// listen reads what the coordinator sends, until the connection ends.
func (p *spoke) listen() {
	defer close(p.link.read)
	for {
		f, err := p.link.next()
		if err == nil {
			err = p.take(f)
		}
		if err != nil {
			p.mu.Lock()
			done := p.still == 0 || p.ended
			p.mu.Unlock()
			if !done {
				p.fail(nil, &LostError{Rank: 0, Step: p.hub.step, Doing: p.hub.doing, Why: p.link.why(err)})
			}
			p.link.end()
			return
		}
	}
}

func (p *spoke) take(f frame) error {
	switch f.kind {
	case kindStart:
		var counts []int
		if err := json.Unmarshal(f.data, &counts); err != nil || p.world > 0 || len(counts) <= p.process ||
			counts[p.process] != len(p.members) {
			return fmt.Errorf("rank 0 counts the ranks wrong")
		}
		for i, n := range counts {
			if n < 1 || n > MaxWorld || p.world > MaxWorld {
				return fmt.Errorf("rank 0 counts the ranks wrong")
			}
			if p.world += n; i < p.process {
				p.first += n
			}
		}
		close(p.start)
	case kindBeat:
		all, err := unpackStatus(f.data)
		if err != nil || len(all) == 0 {
			return fmt.Errorf("read what rank 0 is doing: %w", err)
		}
		p.hub = all[0]
	case kindResult:
		if p.world == 0 {
			return fmt.Errorf("a result before the start")
		}
		parts, err := unpackParts(f.data, p.world)
		if err != nil {
			return fmt.Errorf("read a result: %w", err)
		}
		p.deliver(f.seq, parts)
	case kindStalled:
		p.mu.Lock()
		p.letGo()
		p.mu.Unlock()
	case kindLost:
		if e := decodeLost(f.data); e != nil {
			p.fail(nil, e)
		}
		p.link.end()
	case kindLeave:
		p.mu.Lock()
		if !p.ended {
			p.ended = true
			close(p.gone)
		}
		p.mu.Unlock()
		p.link.end()
	default:
		return fmt.Errorf("a message of kind %d from rank 0", f.kind)
	}
	return nil
}

// begin waits for the start.
func (p *spoke) begin(ctx context.Context) error {
	select {
	case <-p.start:
		return nil
	case <-p.lost:
		return p.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}
