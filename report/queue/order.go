package queue

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
)

// Move gives a waiting run an earlier turn (by < 0) or a later one, by so many places; the first and the last place are
// the ends. Of two that move at once the later counts.
func (q *Queue) Move(id string, by int) error {
	q.moving.Lock()
	defer q.moving.Unlock()
	all, err := q.List()
	if err != nil {
		return err
	}
	var order []string
	for _, e := range all {
		if e.State == Waiting {
			order = append(order, e.ID)
		}
	}
	at := slices.Index(order, id)
	if at < 0 {
		return ErrGone
	}
	to := min(max(at+max(min(by, mostWaiting), -mostWaiting), 0), len(order)-1)
	order = slices.Insert(slices.Delete(order, at, at+1), to, id)
	text, err := json.Marshal(order)
	if err == nil {
		err = atomicfile.Write(filepath.Join(q.dir, orderFile), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keep the order of the queue: %w", err)
	}
	return nil
}

// sortWaiting puts entries that wait in the order that they were given; those that came since are behind them. A file
// that is damaged says nothing.
func (q *Queue) sortWaiting(all []Entry) {
	text, err := regular.ReadFile(filepath.Join(q.dir, orderFile))
	var order []string
	if err != nil || len(text) > mostEntry || json.Unmarshal(text, &order) != nil {
		return
	}
	place := make(map[string]int, len(order))
	for i, id := range order {
		place[id] = i - len(order) // below 0, the place of those that are not named
	}
	first := slices.IndexFunc(all, func(e Entry) bool { return e.State == Waiting })
	if first < 0 {
		return
	}
	slices.SortStableFunc(all[first:], func(a, b Entry) int { return place[a.ID] - place[b.ID] })
}
