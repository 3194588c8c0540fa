// Package chatpage holds a conversation's part of a page: a script that shows messages and asks for answers, and its
// style. It loads nothing from elsewhere, and sets what a model says as text.
package chatpage

import _ "embed" // the files of the page

var (
	// Script makes an object chat; its attach builds a conversation inside an element.
	//
	//go:embed chat.js
	Script string
	// Style is the conversation's style; it uses the colours that Colours sets.
	//
	//go:embed chat.css
	Style string
	// Colours are the colours of a page that has none of its own, light and dark.
	//
	//go:embed colours.css
	Colours string
)
