package objective

// Count names something that batches have a number of. A step's loss is averaged over one of them, and so is each Number.
type Count int

// The counts of a step or an evaluation.
const (
	Tokens    Count = iota // trained tokens
	Sequences              // sequences, each a row or one of a group's
	Groups                 // groups of sequences that stay together, such as preference pairs; a single row is one
)

func (c Count) String() string { return [...]string{"tokens", "sequences", "groups"}[c] }

// Counts are the numbers of trained tokens, sequences and groups of a step, an interval of steps or an evaluation, over all
// ranks.
type Counts struct {
	Tokens    int64 `json:"tokens"`
	Sequences int64 `json:"sequences"`
	Groups    int64 `json:"groups"`
}

// Of returns one of the counts.
func (c Counts) Of(of Count) int64 { return [...]int64{c.Tokens, c.Sequences, c.Groups}[of] }

// Add adds other counts.
func (c *Counts) Add(o Counts) {
	c.Tokens, c.Sequences, c.Groups = c.Tokens+o.Tokens, c.Sequences+o.Sequences, c.Groups+o.Groups
}

// Number is a number that an objective reports of steps and of evaluations beside the loss. It is a mean: the device adds
// its sum up over the micro-batches of a step, in the order of the window whoever computes them, and the host divides by a
// count.
type Number struct {
	// Name is its key in metrics.jsonl, trackers and expectations, such as rewards/margins. That of an evaluation has
	// "eval_" before it.
	Name string
	// Unit is the unit of a value for people, such as "nats/token"; "" = none.
	Unit string
	// Per is what the sum is divided by, unless Among is set.
	Per Count
	// Among names the Number whose sum this one's sum is divided by: the mean is one among the rows that the other
	// counts. Where it counts none, the number has no value. "" = Per is the divisor.
	Among string
	// Of names the Number that this one is derived from by Derive, or "loss". "" = it has a sum of its own (Outcome.Sums).
	Of string
	// Derive turns the mean of Of into this number's value; nil where Less is set.
	Derive func(mean float64) float64
	// Less names the Number whose value is subtracted from that of Of. "" = none.
	Less string
	// Judged says that the number is computed from all rows of an evaluation together (Judging). It has no value in
	// steps and none of the other fields but Name.
	Judged bool
	// Hidden says that the number only counts what others are means among (Among). It has no value of its own.
	Hidden bool
	// HigherIsBetter says which of two values is the better one; a loss is better where it is lower.
	HigherIsBetter bool
}

// Listed reports whether tables, trackers and the terminal list the number beside the others. They leave out functions
// of one other number, such as a perplexity, and hidden numbers.
func (n Number) Listed() bool { return !n.Hidden && (n.Of == "" || n.Less != "") }

// Summed reports whether the number has a sum of its own.
func (n Number) Summed() bool { return n.Of == "" && !n.Judged }

// Loss is the name of the loss among numbers.
const Loss = "loss"

// Value is a Number's value.
type Value struct {
	Name  string
	Value float64
}

// Values returns the values of numbers, given the mean loss, the sums of those that have one, and what these are sums
// over. A number is left out where nothing of its kind was counted.
func Values(numbers []Number, loss float64, sums []float64, over Counts) []Value {
	all := make([]Value, 0, len(numbers))
	known, sumOf := map[string]float64{Loss: loss}, map[string]float64{}
	for _, n := range numbers {
		if n.Summed() {
			sumOf[n.Name], sums = sums[0], sums[1:]
		}
	}
	for _, n := range numbers {
		if v, ok := n.value(known, sumOf, over); ok {
			known[n.Name] = v
			all = append(all, Value{n.Name, v})
		}
	}
	return all
}

// value returns the number's value, given the values of the numbers before it and the sums of all; false if it has
// none.
func (n Number) value(known, sumOf map[string]float64, over Counts) (v float64, ok bool) {
	switch of, has := known[n.Of]; {
	case n.Judged || n.Hidden:
		return 0, false
	case n.Of == "" && n.Among == "":
		return sumOf[n.Name] / float64(over.Of(n.Per)), true
	case n.Of == "":
		return sumOf[n.Name] / sumOf[n.Among], sumOf[n.Among] != 0
	case n.Less == "":
		return n.Derive(of), has
	default:
		less, known := known[n.Less]
		return of - less, has && known
	}
}
