package jinja

// The nodes that the parser makes. Their names come from Jinja2's nodes; scope.go follows the rules of scope of these.
type (
	node interface{ lineOf() int }

	at struct{ line int }

	outputNode struct {
		at
		items []node
	}
	dataNode struct {
		at
		text string
	}
	forNode struct {
		at
		target, iter, test node
		body, els          []node
		recursive          bool
	}
	ifNode struct {
		at
		test  node
		body  []node
		elifs []*ifNode
		els   []node
	}
	withNode struct {
		at
		targets, values []node
		body            []node
	}
	macroNode struct {
		at
		name     string
		args     []*nameNode
		defaults []node
		body     []node
	}
	callBlockNode struct {
		at
		call       *callNode // nil = a {% generation %} block
		macroNode  *macroNode
		generation bool
	}
	filterBlockNode struct {
		at
		filter node
		body   []node
	}
	setNode struct {
		at
		target, value node
	}
	setBlockNode struct {
		at
		target, filter node
		body           []node
	}
	loopControlNode struct {
		at
		brk bool
	}

	nameNode struct {
		at
		name string
		ctx  byte // 'l' load, 's' store, 'p' parameter
	}
	nsRefNode struct {
		at
		name, attr string
	}
	constNode struct {
		at
		value Value
	}
	tupleNode struct {
		at
		items []node
	}
	listNode struct {
		at
		items []node
	}
	dictNode struct {
		at
		keys, values []node
	}
	binaryNode struct {
		at
		op          byte // one of the operators of binary
		left, right node
	}
	// boolNode is an and or an or.
	boolNode struct {
		at
		and         bool
		left, right node
	}
	unaryNode struct {
		at
		op byte // '!' for not, - +
		x  node
	}
	compareNode struct {
		at
		first node
		ops   []string
		rest  []node
	}
	concatNode struct {
		at
		items []node
	}
	condNode struct {
		at
		test, yes, no node // no may be nil
	}
	getattrNode struct {
		at
		x    node
		name string
	}
	getitemNode struct {
		at
		x, index node
	}
	sliceNode struct {
		at
		start, stop, step node // each may be nil
	}
	callNode struct {
		at
		x node
		arguments
	}
	filterNode struct {
		at
		x    node // nil = the body of a block
		name string
		arguments
	}
	testNode struct {
		at
		x    node
		name string
		arguments
	}
	arguments struct {
		args     []node
		keys     []string
		values   []node
		star     node // *args
		starStar node // **kwargs
	}
)

func (a at) lineOf() int { return a.line }
