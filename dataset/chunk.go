package dataset

// chunks reports whether a text longer than MaxLength becomes several rows.
func (c Config) chunks() bool {
	return c.OnTruncated == TruncatedAuto || c.OnTruncated == TruncatedChunk
}

// rows returns the rows that the example becomes: none if it is dropped, one, or one for every chunk. Every token is in
// exactly one row. A last chunk of a single token, which nothing would predict, takes one more token from the chunk
// before.
func (e encoded) rows() []encoded {
	if e.drop != "" {
		return nil
	}
	if e.chunk == 0 {
		return []encoded{e}
	}
	var parts []encoded
	for at := 0; at < len(e.ids); {
		n := min(e.chunk, len(e.ids)-at)
		if len(e.ids)-at-n == 1 && n > 2 {
			n--
		}
		part := encoded{ids: e.ids[at : at+n], labels: e.labels[at : at+n], length: n}
		if e.weights != nil {
			part.weights = e.weights[at : at+n]
		}
		part.labels[0] = Ignore // nothing before this token in its row predicts it
		if countTrained(part.labels) > 0 {
			parts = append(parts, part)
		}
		at += n
	}
	return parts
}
