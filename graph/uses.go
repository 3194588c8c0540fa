package graph

// uses counts how often each value is read, by calls and as an output.
func uses(calls []*call, outputs []*Value) map[*Value]int {
	n := map[*Value]int{}
	for _, c := range calls {
		for _, v := range c.in {
			n[v]++
		}
	}
	for _, v := range outputs {
		n[v]++
	}
	return n
}

// readersOf lists for each value the places of the calls that read it, in order; len(calls) stands for an output.
func readersOf(calls []*call, outputs []*Value) map[*Value][]int {
	r := map[*Value][]int{}
	for i, c := range calls {
		for _, v := range c.in {
			r[v] = append(r[v], i)
		}
	}
	for _, v := range outputs {
		r[v] = append(r[v], len(calls))
	}
	return r
}

// lastReads returns the place of the last call that reads each value; len(calls) stands for an output.
func lastReads(calls []*call, outputs []*Value) map[*Value]int {
	last := map[*Value]int{}
	for i, c := range calls {
		for _, v := range c.in {
			last[v] = i
		}
	}
	for _, v := range outputs {
		last[v] = len(calls)
	}
	return last
}

// placesOf returns the place of each call in the list.
func placesOf(calls []*call) map[*call]int {
	at := make(map[*call]int, len(calls))
	for i, c := range calls {
		at[c] = i
	}
	return at
}
