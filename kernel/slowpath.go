package kernel

// SlowPath is a fast path that a run leaves. Its numbers are right, but it takes longer than another run would.
type SlowPath struct {
	What   string `json:"what"`
	Cost   string `json:"cost"`   // as measured, with the device and where it is written, or NotMeasured
	Remedy string `json:"remedy"` // what takes the fast path, or what asks for the slow one
}

// NotMeasured is the cost of a slow path that nobody has timed.
const NotMeasured = "not measured"

func (s SlowPath) String() string { return s.What + "; cost: " + s.Cost + "; remedy: " + s.Remedy }
