//go:build unix

package live

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/browsertest"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/train"
)

// TestBrowserShowsNumbersWithSlashes checks that numbers such as rewards/margins have a plot each, with their
// evaluations, on a wide page and on a phone, that they grow while the page is open, and that the loss of preferences
// has no perplexity.
func TestBrowserShowsNumbersWithSlashes(t *testing.T) {
	b := browsertest.Start(t)
	s, root := fixture(t, func(o *Options) {
		o.Settings = func([]byte) ([]runs.Setting, error) {
			return []runs.Setting{{Key: "training.objective", Value: "dpo"}}, nil
		}
	})
	line := func(step int) string {
		numbers := fmt.Sprintf(`rewards/chosen":%d.25,"PREFIXrewards/margins":%d.5,"PREFIXlogps/rejected":-%d}`, step,
			step, step)
		return fmt.Sprintf(`{"step":%d,"epoch":0.5,"loss":0.5,"`, step) + strings.ReplaceAll(numbers, "PREFIX", "") +
			"\n" + fmt.Sprintf(`{"step":%d,"epoch":0.5,"eval_loss":0.4,"eval_`, step) +
			strings.ReplaceAll(numbers, "PREFIX", "eval_") + "\n"
	}
	write(t, root, "dpo", train.ConfigFile, "x")
	for step := range 30 {
		write(t, root, "dpo", train.MetricsFile, line(step+1))
	}
	address := "http://" + serve(t, s) + "/"
	plot := func(name string) string {
		return `[...document.querySelectorAll("#page figure.plot")].find((e) => e.textContent.trim().startsWith("` + name +
			`"))`
	}
	for i, width := range []int{1280, 360} {
		b.Open(fmt.Sprintf("%s?%d", address, i), width, 800, i == 1, true)
		for _, name := range []string{"rewards/chosen", "rewards/margins", "logps/rejected"} {
			b.Wait(plot(name))
			var text string
			if b.Eval(plot(name)+`.textContent`, &text); !strings.Contains(text, "evaluation") {
				t.Errorf("%s, %d wide: no evaluations: %s", name, width, text)
			}
		}
		fits(t, b, "numbers", width)
		var page string
		if b.Eval(`document.getElementById("page").innerText`, &page); strings.Contains(page, "perplexity") {
			t.Error("a loss of preferences has a perplexity")
		}
	}
	write(t, root, "dpo", train.MetricsFile, line(60))
	b.Wait(plot("rewards/margins") + `.textContent.includes("60.5")`)
	if b.Console != nil {
		t.Errorf("the page reports %s", strings.Join(b.Console, "\n"))
	}
}
