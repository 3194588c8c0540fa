package dataset

// chunks says that a text longer than MaxLength becomes several rows.
func (c Config) chunks() bool {
	return c.OnTruncated == TruncatedAuto || c.OnTruncated == TruncatedChunk
}

// rows are the rows that the example becomes: none if it is dropped, one, or a row for every chunk. No token is in two
// of them, and none is lost: a last chunk of one token, which nothing would predict, takes a second one from the chunk
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
		part.labels[0] = Ignore // nothing before it in its row predicts it
		if countTrained(part.labels) > 0 {
			parts = append(parts, part)
		}
		at += n
	}
	return parts
}
