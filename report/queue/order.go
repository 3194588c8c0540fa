package queue

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
)

// Move moves a waiting run by the given number of positions, earlier (by < 0) or later; it stops at the first and the
// last position. Of two concurrent moves the later one counts.
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

// sortWaiting sorts waiting entries into the saved order; entries that were added since come last. A damaged file of
// the order is ignored.
func (q *Queue) sortWaiting(all []Entry) {
	text, err := regular.ReadFile(filepath.Join(q.dir, orderFile))
	var order []string
	if err != nil || len(text) > mostEntry || json.Unmarshal(text, &order) != nil {
		return
	}
	place := make(map[string]int, len(order))
	for i, id := range order {
		place[id] = i - len(order) // below 0, the position of entries that the file does not name
	}
	first := slices.IndexFunc(all, func(e Entry) bool { return e.State == Waiting })
	if first < 0 {
		return
	}
	slices.SortStableFunc(all[first:], func(a, b Entry) int { return place[a.ID] - place[b.ID] })
}
