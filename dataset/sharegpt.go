package dataset

// sharegpt reads {conversations: [{from, value}], system, tools}: the format of ShareGPT and LLaMA-Factory.
var sharegpt = Format{
	Roles: []Role{
		{Name: "conversations", Keys: []string{"conversations", "conversation"}},
		{Name: "system", Keys: systemKeys, Optional: true},
		{Name: "tools", Keys: toolKeys, Optional: true},
		{Name: "chat_template_kwargs", Keys: []string{"chat_template_kwargs"}, Optional: true},
		{Name: "images", Keys: imageKeys, Optional: true},
	},
	Chat:     true,
	NoPrompt: "dataset.train_on says what is trained",
	Render:   renderShareGPT,
}

func renderShareGPT(f Fields, c Config) (Example, error) {
	return conversation(f, "conversations", "", c.Images != nil)
}
