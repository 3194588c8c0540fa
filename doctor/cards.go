package doctor

import (
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// near is the number of degrees below the card's own limit from which it counts as warm.
const near = 5

// cards judges NVML's data on each card that CUDA shows; for other cards it only reports failures.
func (l *findings) cards(f Facts) {
	if len(f.Hardware.GPUs) > 0 && f.NoCards != "" {
		remedy := ""
		if f.Host.Container != "" {
			remedy = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
		}
		l.add(Note, "NVML", remedy, "%s: temperature, clocks, ECC and other processes are not known", strings.TrimPrefix(f.NoCards, "NVML: "))
	}
	shown := map[int]bool{}
	for _, g := range f.Hardware.GPUs {
		c, ok := g.Card(f.Cards)
		if !ok {
			if len(f.Cards) > 0 {
				l.add(Note, gpuName(g), "", "NVML lists no card of its UUID or bus id")
			}
			continue
		}
		shown[c.Index] = true
		if c.Problem != "" {
			l.add(Error, gpuName(g)+" state", "read the kernel's log (dmesg, Xid) and restart the machine; a card that does it again is defective", "%s", c.Problem)
			continue
		}
		l.memory(f, g, c)
		l.heat(g, c)
		l.clocks(g, c)
		l.errors(g, c)
		l.modes(f, g, c)
	}
	l.links(f, shown)
	for _, c := range f.Cards {
		if !shown[c.Index] && c.Problem != "" {
			l.add(Warning, fmt.Sprintf("card %d (nvidia-smi)", c.Index), "read the kernel's log (dmesg, Xid) and restart the machine", "%s", c.Problem)
		}
	}
}

// others returns the processes on a card except this one.
func others(c graph.Card, pid int) (all []graph.CardProcess, bytes int64) {
	for _, p := range c.Processes {
		if p.PID != pid {
			all = append(all, p)
			bytes += p.Bytes
		}
	}
	return all, bytes
}

func processLine(p graph.CardProcess) string {
	s := strings.TrimSpace(fmt.Sprintf("%d %s", p.PID, p.Name))
	if p.Bytes > 0 {
		s += " " + session.FormatBytes(p.Bytes)
	}
	return s
}

func (l *findings) memory(f Facts, g graph.GPUInfo, c graph.Card) {
	about := gpuName(g) + " memory"
	free, total := c.Free, c.Total
	for _, i := range c.Instances {
		if strings.EqualFold(strings.TrimPrefix(i.UUID, "MIG-"), g.UUID) {
			free, total = i.Free, i.Total
		}
	}
	says := fmt.Sprintf("%s of %s free", session.FormatBytes(free), session.FormatBytes(total))
	who, held := others(c, f.PID)
	const idle = 1 << 30 // memory of the card's own tables and a context
	switch {
	case len(who) > 0:
		names := make([]string, 0, 4)
		for i, p := range who {
			if i == 4 {
				names = append(names, fmt.Sprintf("%d more", len(who)-i))
				break
			}
			names = append(names, processLine(p))
		}
		s := Note
		if held > total/20 || free < total*9/10 {
			s = Warning
		}
		l.add(s, about, "end them, choose another card (CUDA_VISIBLE_DEVICES), or set vram below what is free", "%s; other processes: %s", says, strings.Join(names, ", "))
	case c.Used > idle && free < total*9/10:
		l.add(Warning, about, "look on the host (nvidia-smi there), choose another card, or set vram below what is free", "%s; who holds the rest is not seen from here", says)
	default:
		l.add(OK, about, "", "%s, no other process", says)
	}
}

func (l *findings) heat(g graph.GPUInfo, c graph.Card) {
	about := gpuName(g) + " temperature"
	if c.Temperature == nil {
		return
	}
	t := *c.Temperature
	says := fmt.Sprintf("%d C", t)
	if c.SlowdownAt != nil {
		says += fmt.Sprintf(", slows down at %d", *c.SlowdownAt)
	}
	const cool = "check fans, air flow and dust, or lower the power limit (nvidia-smi -pl WATTS)"
	switch {
	case c.ShutdownAt != nil && t >= *c.ShutdownAt:
		l.add(Error, about, cool, "%s, turns itself off at %d", says, *c.ShutdownAt)
	case c.SlowdownAt != nil && t >= *c.SlowdownAt-near:
		l.add(Warning, about, cool, "%s", says)
	default:
		l.add(OK, about, "", "%s", says)
	}
}

// clocks judges limits that a user has set and throttling that is active now.
func (l *findings) clocks(g graph.GPUInfo, c graph.Card) {
	about := gpuName(g) + " clocks"
	found := false
	if c.PowerLimit != nil && c.PowerDefault != nil && *c.PowerLimit < *c.PowerDefault*95/100 {
		l.add(Warning, about, fmt.Sprintf("nvidia-smi -i %d -pl %d, as root", c.Index, *c.PowerDefault/1000), "the power limit is %d W, the card's own is %d W: steps are slower", *c.PowerLimit/1000, *c.PowerDefault/1000)
		found = true
	}
	if c.ClockApp != nil && c.ClockAppUsual != nil && *c.ClockApp < *c.ClockAppUsual {
		l.add(Warning, about, fmt.Sprintf("nvidia-smi -i %d -rac, as root", c.Index), "application clocks are set to %d MHz, the card's own are %d: steps are slower", *c.ClockApp, *c.ClockAppUsual)
		found = true
	}
	var hard, soft []string
	for _, r := range c.Throttled {
		switch {
		case strings.Contains(r, "temperature") || strings.Contains(r, "slowdown") || strings.Contains(r, "brake"):
			hard = append(hard, r)
		default:
			soft = append(soft, r)
		}
	}
	if len(hard) > 0 {
		l.add(Warning, about, "check cooling and power supply (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER)", "throttled now: %s", strings.Join(hard, ", "))
		found = true
	}
	if len(soft) > 0 {
		l.add(Note, about, "", "held back now: %s", strings.Join(soft, ", "))
		found = true
	}
	if !found && c.Clock != nil && c.ClockMax != nil {
		l.add(OK, about, "", "%d MHz now, at most %d", *c.Clock, *c.ClockMax)
	}
}

func above(v *int64, least int64) bool { return v != nil && *v >= least }

func yes(v *bool) bool { return v != nil && *v }

// manyCorrected is the number of corrected errors since the driver's start above which they are not chance.
const manyCorrected = 1000

// errors judges the card's memory: ECC counts, retired pages, remapped rows.
func (l *findings) errors(g graph.GPUInfo, c graph.Card) {
	about := gpuName(g) + " ECC"
	const replace = "have the card replaced: its vendor asks for nvidia-bug-report.sh"
	reset := fmt.Sprintf("nvidia-smi -i %d --gpu-reset while nothing runs on it, or restart the machine", c.Index)
	found := false
	say := func(s Severity, remedy, says string, args ...any) {
		l.add(s, about, remedy, says, args...)
		found = true
	}
	if yes(c.RemapFailed) {
		say(Error, replace, "a damaged memory row could not be replaced")
	}
	if yes(c.RemapPending) || yes(c.RetirePending) {
		say(Warning, reset, "damaged memory waits to be taken out of use")
	}
	if above(c.Uncorrected, 1) {
		say(Warning, reset+"; run trainer selfcheck afterwards", "%d errors since the driver started that could not be corrected", *c.Uncorrected)
	}
	if above(c.RemappedBroken, 1) || above(c.RetiredDouble, 1) || above(c.UncorrectEver, 1) && !above(c.Uncorrected, 1) {
		say(Note, "watch whether it grows", "in its life: %d errors not corrected, %d rows remapped, %d pages retired after them", value(c.UncorrectEver), value(c.RemappedBroken), value(c.RetiredDouble))
	}
	if above(c.Corrected, manyCorrected) {
		say(Note, "watch whether it grows; the numbers are right", "%d corrected errors since the driver started", *c.Corrected)
	}
	switch {
	case c.ECC == "disabled":
		say(Note, fmt.Sprintf("nvidia-smi -i %d -e 1 as root, and a restart: a flipped bit in memory goes unseen without it", c.Index), "turned off")
	case c.ECCPending != "" && c.ECCPending != c.ECC:
		say(Note, "", "%s now, %s after a restart", c.ECC, c.ECCPending)
	}
	if !found && c.ECC == "enabled" {
		l.add(OK, about, "", "on, no error that matters")
	}
}

func value(v *int64) int64 {
	if v == nil {
		return 0
	}
	return *v
}

// modes judges which processes may use the card.
func (l *findings) modes(f Facts, g graph.GPUInfo, c graph.Card) {
	about := gpuName(g) + " mode"
	who, _ := others(c, f.PID)
	found := false
	shared := fmt.Sprintf("nvidia-smi -i %d -c DEFAULT, as root", c.Index)
	switch {
	case c.ComputeMode == "prohibited":
		l.add(Error, about, shared, "compute mode prohibited: no program may compute on it")
		found = true
	case strings.HasPrefix(c.ComputeMode, "exclusive") && len(who) > 0:
		l.add(Warning, about, shared+", or wait", "compute mode exclusive, and another process is on the card: %s", processLine(who[0]))
		found = true
	case strings.HasPrefix(c.ComputeMode, "exclusive"):
		l.add(Note, about, "", "compute mode exclusive: one program at a time")
		found = true
	}
	if c.MIG == "enabled" {
		l.add(Note, about, "", "MIG is on: a run sees one instance of the card, its memory and its part of the processors")
		found = true
	}
	if c.Persistence != nil && !*c.Persistence {
		l.add(Note, about, "nvidia-smi -pm 1 as root, or nvidia-persistenced", "persistence mode is off: the first program after a pause waits seconds for the card")
		found = true
	}
	if !found && c.ComputeMode != "" {
		l.add(OK, about, "", "shared (compute mode default)")
	}
}
