package dataset

// dealer deals the rows of a run one stretch at a time: an epoch of a set, or a window of a stream.
type dealer interface {
	// deal returns the stretch that begins at the given place: the first of a run, the one after another stretch, or
	// that of a restored State.
	deal(at start) (*stretch, error)
	// preview returns the stretch that stands for an epoch before it is dealt: the whole epoch, or the first window of
	// a stream.
	preview(epoch int) *stretch
	// data returns what a restored State must match.
	data() (rows int, digest string)
	len() int // number of rows, 0 if it is unknown
	// share returns a dealer of the same rows for another cursor.
	share() dealer
	close()
}

// start is the place where a stretch begins.
type start struct {
	epoch int
	in    StreamState // place in a stream
}

// stretch is a run of rows in the order in which they are dealt.
type stretch struct {
	start
	rows     Rows
	dealt    sequences
	came     sequences // sequences before their batches were balanced; none = same as dealt
	tokens   int       // tokens of the rows
	whole    bool      // the stretch holds all rows of the epoch
	next     start
	from, to float64 // fractions of the epoch that lie before this stretch and before the next one
	ended    func()  // called when the epoch is over; may be nil
}

// last reports whether the epoch ends with this stretch.
func (s *stretch) last() bool { return s.next.epoch > s.epoch }

// order returns the rows of one stretch in the order in which they are dealt. Packing works on `window` rows at a time.
func (o Options) order(rows Rows, most, window int, rng *random) sequences {
	order := upTo(rows.Len())
	if o.Shuffle {
		shuffle(rng, order)
	}
	if !o.Packing {
		return sequences{rows: order}
	}
	dealt := pack(rows, order, o.T, most, o.Group, window)
	if o.Shuffle {
		return dealt.shuffled(rng) // packing sorts by length; training must not
	}
	return dealt
}

// batches returns the number of batches that the given number of sequences make.
func (o Options) batches(sequences int) int { return (sequences + o.BatchSize - 1) / o.BatchSize }

// flat reports whether the rows of a batch lie end to end.
func (o Options) flat() bool { return !o.Packing && !o.Padded }

// epochs deals a set, whose rows are all loaded.
type epochs struct {
	rows   Rows
	opt    Options
	most   int
	tokens int
	digest string
}

func (e *epochs) deal(at start) (*stretch, error) { return e.preview(at.epoch), nil }

func (e *epochs) preview(epoch int) *stretch {
	return &stretch{
		start: start{epoch: epoch}, rows: e.rows, tokens: e.tokens, whole: true, next: start{epoch: epoch + 1}, to: 1,
		dealt: e.opt.order(e.rows, e.most, packWindow, newRandom(e.opt.Seed, streamOrder, uint64(epoch))),
	}
}

func (e *epochs) data() (rows int, data string) {
	if e.digest == "" {
		e.digest = digest(e.rows)
	}
	return e.rows.Len(), e.digest
}

func (e *epochs) len() int { return e.rows.Len() }

func (e *epochs) share() dealer {
	own := *e
	return &own
}

func (e *epochs) close() {}
