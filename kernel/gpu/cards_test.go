package gpu

import "testing"

func TestCardOf(t *testing.T) {
	cards := []Card{
		{Index: 0, UUID: "GPU-aaaaaaaa-0000-0000-0000-000000000000", PCI: "00000000:17:00.0"},
		{Index: 1, UUID: "GPU-bbbbbbbb-0000-0000-0000-000000000000", PCI: "00000000:65:00.0",
			Instances: []CardInstance{{UUID: "MIG-cccccccc-0000-0000-0000-000000000000"}}},
		{Index: 2, PCI: "00000001:17:00.0"},
	}
	for _, c := range []struct {
		name string
		p    Properties
		want int // -1: none
	}{
		{"by UUID, whatever the order", Properties{Index: 0, UUID: "bbbbbbbb-0000-0000-0000-000000000000",
			PCI: "0000:17:00.0"}, 1},
		{"a MIG instance", Properties{UUID: "CCCCCCCC-0000-0000-0000-000000000000"}, 1},
		{"by bus id", Properties{UUID: "dddddddd-0000-0000-0000-000000000000", PCI: "0000:17:00.0"}, 0},
		{"by bus id, another domain", Properties{PCI: "0001:17:00.0"}, 2},
		{"nothing known", Properties{}, -1},
		{"not there", Properties{UUID: "dddddddd-0000-0000-0000-000000000000", PCI: "0000:99:00.0"}, -1},
		{"no bus id", Properties{PCI: "17"}, -1},
	} {
		got, ok := CardOf(cards, c.p)
		if ok != (c.want >= 0) || ok && got.Index != c.want {
			t.Errorf("%s: card %d %v, want %d", c.name, got.Index, ok, c.want)
		}
	}
}

func TestThrottleWords(t *testing.T) {
	for bits, want := range map[int64]int{0: 0, 1: 0, 4: 1, 0xff: 7, 0x100000: 1} {
		if got := throttleWords(bits); len(got) != want {
			t.Errorf("%#x: %q", bits, got)
		}
	}
}
