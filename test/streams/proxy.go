package streams

import (
	"io"
	"net"
	"sync"
)

// Proxy stands between the broker and the applications that have
// Options.Proxied, and can be cut. There is one for all of them.
type Proxy struct {
	listener net.Listener
	to       string
	// A piece of data passes while this is locked for reading.
	gate sync.RWMutex
}

func startProxy(at, to string) (*Proxy, error) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, to: to}
	go p.accept()
	return p, nil
}

// Cut lets nothing through any more, in either direction, until Mend:
// connections stay open, and new ones are taken, but lead nowhere. That is how
// a broker looks that hangs or whose network is gone.
func (p *Proxy) Cut() { p.gate.Lock() }

// Mend ends a Cut; what was sent meanwhile arrives.
func (p *Proxy) Mend() { p.gate.Unlock() }

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // of a listener that ends with the process, or ran out of descriptors with it
		}
		go p.serve(c)
	}
}

func (p *Proxy) serve(client net.Conn) {
	broker, err := net.Dial("tcp", p.to)
	if err != nil {
		_ = client.Close() // the broker is gone, and so will be the client
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pass(broker, client) })
	both.Go(func() { p.pass(client, broker) })
	both.Wait()
}

// pass copies until one of both ends, and then ends the other.
func (p *Proxy) pass(to, from net.Conn) {
	_, _ = io.Copy(gated{to, &p.gate}, from) // how a connection ended is for its ends to tell
	_ = to.Close()
	_ = from.Close()
}

type gated struct {
	to   io.Writer
	gate *sync.RWMutex
}

func (g gated) Write(data []byte) (int, error) {
	g.gate.RLock()
	defer g.gate.RUnlock()
	return g.to.Write(data)
}
