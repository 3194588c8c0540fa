package reward

import (
	"context"
	"sync"

	"github.com/tierlora/tierlora/internal/rescue"
)

// inParallel calls ask for the tasks 0 to n-1, Workers of them at a time, and returns the error of each. Worker w has
// the tasks w, w+Workers and so on; unless on_error is zero, it ends at its first error. err is the error of ctx.
func (c Config) inParallel(ctx context.Context, n int, ask func(worker, task int) error) (problems []error, err error) {
	problems = make([]error, n)
	var all sync.WaitGroup
	for w := range min(c.Workers, n) {
		all.Go(rescue.Wrap(func() {
			for i := w; i < n && ctx.Err() == nil; i += c.Workers {
				if problems[i] = ask(w, i); problems[i] != nil && c.OnError != "zero" {
					return
				}
			}
		}))
	}
	all.Wait()
	return problems, ctx.Err()
}
