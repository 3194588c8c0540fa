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

// Measured in control groups of 10 to 80 MiB: the memory that the smallest built-in run needs before it has a plan, the
// additional memory per byte of tokenizer.json, and the part of both that the garbage collector does not manage, such
// as pages of the program and the system's tables.
const (
	leastMemory     = 14 << 20
	tokenizerFactor = 8
	notCollected    = 4 << 20
	// rankMemory is the memory that each rank after the first of a process needs before the plan, in bytes. In runs
	// with 4 to 64 ranks the system killed processes with up to 3.0 MiB per rank; with 3.3 to 3.5 MiB they trained.
	rankMemory = 7 << 19
	// processMemory is the memory that a process needs in a control group that it shares with other ranks of its host,
	// in bytes. With 3 and 4 processes the system killed some at up to 15 MiB each.
	processMemory = leastMemory + notCollected
)

// groupMemory is the memory that the control group of this process (a container, a job) had left at the start, in
// bytes.
type groupMemory struct {
	left    int64
	whole   int64 // limit of the group
	limited bool
}

// withinGroup sets the garbage collector's memory limit so that the process stays within its control group, whose limit
// would kill it. GOMEMLIMIT has precedence. limit is debug.SetMemoryLimit.
func withinGroup(root string, limit func(int64) int64) groupMemory {
	var g groupMemory
	limits := cgroup.Read(root)
	g.whole = limits.Memory
	if g.left, g.limited = limits.Left(); g.limited && g.left > notCollected && os.Getenv("GOMEMLIMIT") == "" {
		limit(g.left - notCollected)
	}
	return g
}

// holds returns an error if the control group is too small to plan a run. tokenizer is the size of the model's
// tokenizer.json in bytes, 0 if unknown; ranks is the number of this process's ranks.
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

// holdsProcesses returns an error if the control group is too small for n ranks on this host, each a process in the
// group.
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

// tokenizerBytes returns the size of a model's tokenizer.json, or 0 if it has none.
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
