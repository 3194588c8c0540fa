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

// Measured in groups of 10 to 80 MiB: what has to be left for the smallest built-in run to reach its plan, how much
// more for each byte of tokenizer.json, and what of it the garbage collector does not see, pages of the program and the
// system's tables.
const (
	leastMemory     = 14 << 20
	tokenizerFactor = 8
	notCollected    = 4 << 20
	// rankMemory is what each rank beyond the first of a process takes before the plan: runs of 4 to 64 ranks were
	// ended by the system with up to 3.0 MiB for each, and trained with 3.3 to 3.5.
	rankMemory = 7 << 19
	// processMemory is what a process takes of the group that it shares with the other ranks on its host: with 3 and 4
	// of them the system ended some at up to 15 MiB each.
	processMemory = leastMemory + notCollected
)

// groupMemory is what the control group of this process (a container, a job) left it at the start, in bytes.
type groupMemory struct {
	left    int64
	whole   int64 // the group's limit
	limited bool
}

// withinGroup makes the garbage collector keep the program within its control group, where the system would end it;
// GOMEMLIMIT wins. limit is debug.SetMemoryLimit.
func withinGroup(root string, limit func(int64) int64) groupMemory {
	var g groupMemory
	limits := cgroup.Read(root)
	g.whole = limits.Memory
	if g.left, g.limited = limits.Left(); g.limited && g.left > notCollected && os.Getenv("GOMEMLIMIT") == "" {
		limit(g.left - notCollected)
	}
	return g
}

// holds refuses a group in which the program would be ended before it has planned a run. tokenizer is the bytes of the
// model's tokenizer.json, as far as they are known, ranks are those of this process.
func (g groupMemory) holds(tokenizer int64, ranks int) error {
	need := leastMemory + tokenizerFactor*tokenizer + int64(max(ranks, 1)-1)*rankMemory
	if !g.limited || g.left >= need {
		return nil
	}
	what := ""
	if ranks > 1 {
		what = fmt.Sprintf(" with %d devices", ranks)
	}
	if tokenizer > 0 {
		what += fmt.Sprintf(", with a tokenizer.json of %s,", session.FormatBytes(tokenizer))
	}
	return fmt.Errorf("%w: the program%s takes %s before it can plan a run, and its control group (a container, a "+
		"job) leaves it %s; raise that limit: "+
		"memory.max, MemoryMax=, docker's memory limit, Kubernetes' limits.memory", session.ErrDoesNotFit, what,
		session.FormatBytes(need), session.FormatBytes(g.left))
}

// holdsProcesses refuses a group that is too small for so many ranks of this host, each a process in it.
func (g groupMemory) holdsProcesses(n int) error {
	need := int64(n) * processMemory
	if n < 2 || !g.limited || g.whole >= need {
		return nil
	}
	return fmt.Errorf("%w: %d processes take %s before they can plan a run, and their control group (a container, a "+
		"job) has %s; start fewer, or raise that limit: "+
		"memory.max, MemoryMax=, docker's memory limit, Kubernetes' limits.memory", session.ErrDoesNotFit, n,
		session.FormatBytes(need), session.FormatBytes(g.whole))
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
