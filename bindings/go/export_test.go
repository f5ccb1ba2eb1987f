package copyrpc

// Hold has the context's goroutine wait, as while something slow is done with the context, until the function it returns is called.
func (c *Context) Hold() (letGo func()) {
	c.poller.mutex.Lock()
	return c.poller.mutex.Unlock
}
