package jinja

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/golden"
)

// BenchmarkRender renders every conversation of the goldens that a template accepts; scripts/jinja_speed.py
// times Jinja2 on the same work.
func BenchmarkRender(b *testing.B) {
	dir := golden.Outside(b, "goldens/templates")
	vars := conversationVars(b, filepath.Join(dir, "conversations.json"))
	for _, g := range templateGoldens(b, dir) {
		if !slices.Contains([]string{"axo-chatml.json", "axo-llama3.json", "trl-qwen3_training.json", "trl-llama3_1.json", "trl-gptoss.json"}, g.name) {
			continue
		}
		t, err := Compile(g.source)
		if err != nil {
			b.Fatal(err)
		}
		var work []*Dict
		for _, row := range g.rows {
			if row.plain.Text != nil {
				v := vars[row.conversation].Copy()
				v.Set("add_generation_prompt", Bool(false))
				v.Set("bos_token", Str(g.bos))
				v.Set("eos_token", Str(g.eos))
				work = append(work, v)
			}
		}
		b.Run(g.name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			start := time.Now()
			for b.Loop() {
				for _, v := range work {
					if _, err := t.Render(v, Options{Now: g.now}); err != nil {
						b.Fatal(err)
					}
					n++
				}
			}
			b.ReportMetric(float64(time.Since(start).Microseconds())/float64(n), "us/conversation")
		})
	}
}
