package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tierlora/tierlora/internal/cgroup"
	"github.com/tierlora/tierlora/model/hub"
	"github.com/tierlora/tierlora/session"
)

// Measured in groups of 10 to 80 MiB: what has to be left for the smallest built-in run to reach its plan, how much more for
// each byte of tokenizer.json, and what of it the garbage collector does not see, pages of the program and the system's tables.
const (
	leastMemory     = 14 << 20
	tokenizerFactor = 8
	notCollected    = 4 << 20
)

// groupMemory is what the control group of this process (a container, a job) left it at the start, in bytes.
type groupMemory struct {
	left    int64
	limited bool
}

// withinGroup makes the garbage collector keep the program within its control group, where the system would end it;
// GOMEMLIMIT wins. limit is debug.SetMemoryLimit.
func withinGroup(root string, limit func(int64) int64) groupMemory {
	var g groupMemory
	if g.left, g.limited = cgroup.Read(root).Left(); g.limited && g.left > notCollected && os.Getenv("GOMEMLIMIT") == "" {
		limit(g.left - notCollected)
	}
	return g
}

// holds refuses a group in which the program would be ended before it has planned a run. tokenizer is the bytes of the model's
// tokenizer.json, as far as they are known.
func (g groupMemory) holds(tokenizer int64) error {
	need := leastMemory + tokenizerFactor*tokenizer
	if !g.limited || g.left >= need {
		return nil
	}
	what := ""
	if tokenizer > 0 {
		what = fmt.Sprintf(", with a tokenizer.json of %s,", session.FormatBytes(tokenizer))
	}
	return fmt.Errorf("%w: the program%s takes %s before it can plan a run, and its control group (a container, a job) leaves it %s; raise that limit: "+
		"memory.max, MemoryMax=, docker's memory limit, Kubernetes' limits.memory", session.ErrDoesNotFit, what, session.FormatBytes(need), session.FormatBytes(g.left))
}

// tokenizerBytes is the size of a model's tokenizer.json, 0 where none is found.
func tokenizerBytes(ctx context.Context, model string, env session.Env) int64 {
	if strings.HasPrefix(model, session.EmbeddedPrefix) {
		return 0
	}
	dir, err := hub.Resolve(ctx, model, env.Hub)
	if err != nil {
		return 0
	}
	info, err := os.Stat(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return 0
	}
	return info.Size()
}
