package train

// Schedules are the learning-rate schedules by their name in the configuration.
var Schedules = map[string]func(c Config, total int) func(step int) float64{}
