//go:build unix

package live

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/browsertest"
	"github.com/tierlora/tierlora/train"
)

// TestBrowserShowsAnswers checks that sampled answers stand with their rewards in tables and a plot, as text, in both
// colour schemes and on a phone, and that answers of a step that is sampled while the page is open appear.
func TestBrowserShowsAnswers(t *testing.T) {
	b := browsertest.Start(t)
	s, root := fixture(t, nil)
	line := func(step int, best string) string {
		return fmt.Sprintf(`{"step":%d,"row":7,"prompt":"Once <b>upon","reward":%d,"reward_std":0.5,`+
			`"best":{"text":%q,"reward":9},"worst":{"text":"bad","reward":-1}}`+"\n", step, step, best)
	}
	write(t, root, "rl", train.MetricsFile, steps(1, 5))
	attack := `</td><script>document.title="run"</script>`
	write(t, root, "rl", train.CompletionsFile, line(1, attack)+line(3, strings.Repeat("x", 600)))
	address := "http://" + serve(t, s) + "/"
	table := func(caption string) string {
		return `[...document.querySelectorAll("#page table")].find((e) => e.caption?.textContent.startsWith("` + caption + `"))`
	}
	for i, width := range []int{1440, 360} {
		b.Open(fmt.Sprintf("%s?%d", address, i), width, 800, i == 1, true)
		b.Wait(table("Sampled answers"))
		var got []string
		cells := `.querySelectorAll("tbody td")].slice(0, 7).map((e) => e.textContent)`
		b.Eval(`[...`+table("Sampled answers")+cells, &got)
		want := []string{"1", "Once <b>upon", "1 ± 0.5", "9", attack, "−1", "bad"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the first row is %q, want %q", got, want)
		}
		b.Eval(`[...`+table("Rewards by prompt")+cells, &got)
		if want := []string{"Once <b>upon", "2", "1", "3", "3"}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the prompt's row is %q, want %q", got, want)
		}
		var wide int
		if b.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
			t.Errorf("the page is %d wide, not %d", wide, width)
		}
		if dir := os.Getenv("REPORT_SCREENSHOTS"); dir != "" {
			b.Eval(table("Sampled answers")+`.scrollIntoView() || 0`, new(any))
			b.Shoot(filepath.Join(dir, fmt.Sprintf("answers-%d.png", width)))
		}
	}
	write(t, root, "rl", train.CompletionsFile, line(4, "new"))
	b.Wait(table("Sampled answers") + `.querySelector("tr:last-child td:nth-child(5)").textContent === "new"`)
	b.Wait(`document.getElementById("page").innerText.includes("Reward by prompt")`)
	var title string
	if b.Eval(`document.title`, &title); title == "run" {
		t.Error("a text of a run was executed")
	}
	if b.Console != nil {
		t.Errorf("the page reports %s", strings.Join(b.Console, "\n"))
	}
}
