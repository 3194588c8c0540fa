package runs

import "github.com/tierlora/tierlora/train"

// Use is a run in progress on this machine.
type Use struct {
	Dir    string
	PID    int
	Device string // device that its plan names; "" = there is no plan yet
	Limit  int64  // memory limit of its plan in bytes; 0 = not known
}

// Busy returns the runs in and below the given folders that a process of this machine trains.
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
