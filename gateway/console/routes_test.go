package console

// Routes returns the patterns of all routes.
func (c *Console) Routes() []string { return c.routes }
