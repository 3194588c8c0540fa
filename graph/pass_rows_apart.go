package graph

import "github.com/tierlora/tierlora/kernel"

// takeRowsApart puts the forms that compute rows apart in place of their kernels, where the computation asks for it.
func takeRowsApart(c *compilation) error {
	if !c.builder.rowsApart {
		return nil
	}
	for _, call := range c.calls {
		if k, ok := call.kernel.(kernel.RowsApart); ok {
			call.kernel = k.WithRowsApart()
		}
	}
	return nil
}

// beginEarly lets calls of few rows, which are short, begin before those that they wait for have ended: they read their
// weights by then.
func beginEarly(c *compilation) error {
	if c.builder.rowsApart {
		c.early = 1
	}
	return nil
}

// beginEarlyAtJoins does so too where calls wait for several others.
func beginEarlyAtJoins(c *compilation) error {
	if c.early > 0 {
		c.early = 64
	}
	return nil
}
