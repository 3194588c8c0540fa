package live

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tierlora/tierlora/train"
)

// TestALargeRunHoldsNobodyUp: beside a run whose file of metrics has 3 GiB in one line the others are shown at once,
// and a page of what is known is there while folders are read.
func TestALargeRunHoldsNobodyUp(t *testing.T) {
	s, root := fixture(t, nil)
	for i := range 5 {
		write(t, root, fmt.Sprintf("small-%d", i), train.MetricsFile, steps(1, 3))
	}
	write(t, root, "large", train.MetricsFile, steps(1, 3))
	if err := os.Truncate(filepath.Join(root, "large", train.MetricsFile), 3<<30); err != nil {
		t.Skip("no sparse files here: ", err)
	}
	shown := func() int {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		rows, _ := s.hub.list()
		return len(rows)
	}
	began := time.Now()
	for s.hub.refresh(nil); shown() < 6 && time.Since(began) < 20*time.Second; s.hub.refresh(nil) {
		time.Sleep(10 * time.Millisecond)
	}
	if took := time.Since(began); shown() < 6 || took > 5*time.Second {
		t.Errorf("%d of 6 runs are shown after %v", shown(), took)
	}

	s.hub.reading <- struct{}{} // somebody reads
	began = time.Now()
	s.hub.refresh(nil)
	if shown() != 6 || time.Since(began) > 2*time.Second {
		t.Errorf("%d runs after %v while somebody else reads", shown(), time.Since(began))
	}
	<-s.hub.reading
}

// TestTheNewestRunsAreShown: of more runs than are shown, those that changed last are.
func TestTheNewestRunsAreShown(t *testing.T) {
	s, root := fixture(t, nil)
	now := time.Now()
	for i := range mostRuns + 20 {
		name := fmt.Sprintf("run-%03d", i) // the first by name are the oldest
		write(t, root, name, train.MetricsFile, steps(1, 1))
		at := now.Add(time.Duration(i-1000) * time.Minute)
		if err := os.Chtimes(filepath.Join(root, name, train.MetricsFile), at, at); err != nil {
			t.Fatal(err)
		}
	}
	s.hub.refresh(nil)
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for i, want := range map[int]bool{0: false, 19: false, 20: true, mostRuns + 19: true} {
		if _, ok := s.hub.items[idOf(filepath.Join(root, fmt.Sprintf("run-%03d", i)))]; ok != want {
			t.Errorf("run %d is known: %v", i, ok)
		}
	}
	rows, _ := s.hub.list()
	if len(rows) == 0 || rows[0].Name != fmt.Sprintf("run-%03d", mostRuns+19) {
		t.Errorf("%d rows, the first is %+v", len(rows), rows[:min(1, len(rows))])
	}
}
