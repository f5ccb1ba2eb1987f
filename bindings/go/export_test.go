package copyrpc

// Hold has the context's goroutine wait, as while something slow is done with the context, until the function it returns is called.
func (c *Context) Hold() (letGo func()) {
	c.poller.mutex.Lock()
	return c.poller.mutex.Unlock
}

// TimeOfEntry is when an entry of the log was made, of which C says this.
var TimeOfEntry = timeOfEntry

// Lose ends the endpoint as if C had told that it was lost for this reason.
func (endpoint *Endpoint) Lose(reason Status) { endpoint.connection.lose(reason) }

// Lose does the same with a channel.
func (ch *Channel) Lose(reason Status) { ch.channel.lose(reason) }

// Lose does the same with a queue.
func (qp *Queue) Lose(reason Status) { qp.queue.lose(reason) }

func (l *link) lose(reason Status) {
	l.poller.control("lose", func() error {
		l.disconnected(reason)
		return nil
	})
}

// SetLow is what RunLow does before it waits, for who holds the context.
func (shared *SharedReceives) SetLow(limit int) error {
	_, err := shared.queue.setLow(limit)
	return err
}
