package runs

import "github.com/tierlora/tierlora/train"

// Use is a run on its way on this machine.
type Use struct {
	Dir    string
	PID    int
	Device string // as its plan names it; "" = there is no plan yet
	Limit  int64  // bytes that it holds at most of a device; 0 = not known
}

// Busy returns the runs in and below some folders that a process of this machine has.
func Busy(roots []string) []Use {
	var all []Use
	for _, dir := range Find(roots, mostFolders) {
		pid, held := HeldBy(dir)
		if !held {
			continue
		}
		r := &Run{Dir: dir}
		u := Use{Dir: dir, PID: pid}
		if p := readAs[train.PlanReport](r, train.PlanReportFile); p != nil {
			u.Device, u.Limit = p.Device, p.TotalBytes
		}
		all = append(all, u)
	}
	return all
}
