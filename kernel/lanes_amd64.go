package kernel

func fastLanes() *lanes[float32] { return nil }
