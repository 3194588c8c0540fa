//go:build unix

package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/ranks"
)

// breakVariable says what happens to a rank of the program: "kill 1 6" = rank 1 is killed in step 6.
const breakVariable = "TRAINER_TEST_BREAK_RANK"

// brokenRank is a rank to which something happens when it comes to a step.
type brokenRank struct {
	ranks.Group
	step int
	once sync.Once
	do   func()
}

func (b *brokenRank) At(step int, doing string) {
	b.Group.At(step, doing)
	if step == b.step && doing == train.StepsPhase {
		time.Sleep(100 * time.Millisecond) // until the others know
		b.once.Do(b.do)
	}
}

// breakRank prepares what breakVariable asks for.
func breakRank() {
	var what string
	var rank, step int
	if n, _ := fmt.Sscan(os.Getenv(breakVariable), &what, &rank, &step); n != 3 {
		return
	}
	toSelf := func(s syscall.Signal) func() {
		return func() { syscall.Kill(os.Getpid(), s) }
	} //nolint:errcheck // the test tells
	do := map[string]func(){
		"kill": toSelf(syscall.SIGKILL), "stop": toSelf(syscall.SIGSTOP), "term": toSelf(syscall.SIGTERM),
		"hang": func() { select {} },
		"slow": func() { time.Sleep(1200 * time.Millisecond) },
		"full": func() {
			unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096,
				Max: unix.RLIM_INFINITY}) //nolint:errcheck // as above
		},
		"wait": func() { time.Sleep(time.Minute) }, // for what the test does to the processes
	}[what]
	atTheirPlaces = func(groups []ranks.Group) []ranks.Group {
		for i, g := range groups {
			name := fmt.Sprintf("pid.%d", g.Rank())
			if err := os.WriteFile(name+".part", fmt.Append(nil, os.Getpid()), 0o600); err == nil &&
				strings.HasPrefix(what, "wait") {
				os.Rename(name+".part", name) //nolint:errcheck // the test tells
			}
			if g.Rank() == rank {
				groups[i] = &brokenRank{Group: g, step: step, do: do}
			}
		}
		return groups
	}
}
