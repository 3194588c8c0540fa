package cuda

// Targets are the forms that a released program holds of each kernel, as scripts/kernels.py compiles them: what a build
// without kernels says of them in a plan for a GPU.
var Targets = []Code{
	{SM: 80}, {SM: 89}, {SM: 90, Specific: true}, {SM: 100, Specific: true}, {SM: 120}, {SM: 90, PTX: true},
	{SM: 120, PTX: true},
}

// ReleasedFor returns the form of a released program's kernels that a device of compute capability sm runs; false where
// it holds none.
func ReleasedFor(sm int) (Code, bool) { return choose(Targets, sm) }
