package gpu

import "testing"

// TestOldestWait: of calls that wait at the same time the oldest is told, however many there are, at no allocation.
func TestOldestWait(t *testing.T) {
	if w, any := Waiting(); any {
		t.Fatalf("something waits: %+v", w)
	}
	first := waitFor("first")
	var others []int
	for range len(waits.slots) + 3 {
		others = append(others, waitFor("another"))
	}
	if w, any := Waiting(); !any || w.What != "first" {
		t.Errorf("the oldest is %+v", w)
	}
	came(first)
	if w, any := Waiting(); !any || w.What != "another" {
		t.Errorf("then %+v", w)
	}
	for _, slot := range others {
		came(slot)
	}
	if w, any := Waiting(); any {
		t.Errorf("something still waits: %+v", w)
	}
	if n := testing.AllocsPerRun(100, func() { came(waitFor("a step")) }); n != 0 {
		t.Errorf("%v allocations a wait", n)
	}
}
