package dataset

// dealer deals the rows of a run a stretch at a time: of a set an epoch, of a stream a window.
type dealer interface {
	// deal gives the stretch that begins at a place: the first of a run, the one behind another, or a State's.
	deal(at start) (*stretch, error)
	// preview is what an epoch is judged by before it is dealt: all of it, or where that is not known the first window.
	preview(epoch int) *stretch
	// data is what a State must agree with.
	data() (rows int, digest string)
	len() int // rows, 0 where that is not known
	// share is a dealer of the same rows for another cursor.
	share() dealer
	close()
}

// start is where a stretch begins.
type start struct {
	epoch int
	in    StreamState // of a stream
}

// stretch is rows in the order in which they are dealt.
type stretch struct {
	start
	rows     Rows
	dealt    sequences
	came     sequences // before their batches were made even; none = dealt
	tokens   int       // of the rows
	whole    bool      // these are all rows of the epoch
	next     start
	from, to float64 // parts of the epoch that lie before its rows and before those of the next stretch
	ended    func()  // what is to be done when the epoch is over; nil = nothing
}

// last tells whether the epoch ends behind the stretch.
func (s *stretch) last() bool { return s.next.epoch > s.epoch }

// order is the rows of one stretch as they are dealt, packed by so many at a time.
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

// batches counts the batches of so many sequences.
func (o Options) batches(sequences int) int { return (sequences + o.BatchSize - 1) / o.BatchSize }

// flat tells whether the rows of a batch lie end to end.
func (o Options) flat() bool { return !o.Packing && !o.Padded }

// epochs deals a set, whose rows are all at hand.
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
