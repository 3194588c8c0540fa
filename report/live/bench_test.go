package live

import (
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/tierlora/tierlora/train"
)

// BenchmarkNews is what a second of looking at a run of 100,000 lines costs this process, while the run writes a line.
func BenchmarkNews(b *testing.B) {
	s, root := fixture(b, nil)
	write(b, root, "a", train.MetricsFile, steps(1, 100_000))
	l := &listener{w: httptest.NewRecorder(), ids: []string{idOf(filepath.Join(root, "a"))}, points: 3000}
	if _, err := l.news(s); err != nil {
		b.Fatal(err)
	}
	for n := 100_001; b.Loop(); n++ {
		write(b, root, "a", train.MetricsFile, step(n, "1.5"))
		for _, it := range s.hub.items {
			it.read = time.Unix(1, 0)
		}
		if sent, err := l.news(s); err != nil || !sent {
			b.Fatal(sent, err)
		}
	}
}
