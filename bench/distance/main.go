//go:build linux

// Distance is a TCP relay that passes each piece of data on after a fixed time in each direction. Connections are made without
// delay. One thread sleeps until data or its timer arrives. The timer is one of the kernel (timerfd_create(2)), because the Go
// runtime sleeps for whole milliseconds. A receiver that reads nothing stops the relay once the buffers of its socket are full.
package main

import (
	"bytes"
	"errors"
	"flag"
	"log"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	var listen, to netip.AddrPort
	flag.TextVar(&listen, "listen", listen, "IPv4 address to serve on")
	flag.TextVar(&to, "to", to, "IPv4 address to connect to, for each connection")
	delay := flag.Duration("delay", 0, "time that each piece of data takes in each direction")
	flag.Parse()
	r, err := open(listen, to, *delay)
	for err == nil {
		err = r.step()
	}
	log.Fatal("distance: ", err)
}

// relay is for one goroutine.
type relay struct {
	to                     unix.Sockaddr
	delay                  time.Duration
	listener, timer, epoll int
	streams                map[int32]*stream // by the socket from which they come
	pieces                 []piece           // under way, the oldest first
}

// stream is one direction of a connection.
type stream struct {
	from, to int
	back     *stream      // the other direction
	data     bytes.Buffer // under way
	isOver   bool
}

// piece is what one read returned. Without bytes it is the end of its stream.
type piece struct {
	stream *stream
	bytes  int
	due    time.Time
}

func open(listen, to netip.AddrPort, delay time.Duration) (*relay, error) {
	listener, err1 := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	timer, err2 := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, 0)
	epoll, err3 := unix.EpollCreate1(0)
	r := &relay{address(to), delay, listener, timer, epoll, map[int32]*stream{}, nil}
	return r, errors.Join(err1, err2, err3, unix.Bind(listener, address(listen)), unix.Listen(listener, unix.SOMAXCONN),
		r.watch(listener, unix.EPOLLIN), r.watch(timer, unix.EPOLLIN|unix.EPOLLET))
}

func address(a netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

func (r *relay) watch(fd int, events uint32) error {
	return unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// step sleeps until something happens, and then does what is due.
func (r *relay) step() error {
	var events [64]unix.EpollEvent
	n, err := unix.EpollWait(r.epoll, events[:], -1)
	if err == unix.EINTR {
		return nil
	}
	for _, event := range events[:max(0, n)] {
		if int(event.Fd) == r.listener {
			err = errors.Join(err, r.accept())
		} else if s := r.streams[event.Fd]; s != nil {
			r.read(s)
		}
	}
	return errors.Join(err, r.deliver())
}

func (r *relay) accept() error {
	near, _, err1 := unix.Accept4(r.listener, 0)
	far, err2 := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	err := errors.Join(err1, err2, unix.Connect(far, r.to))
	pair := [2]stream{{from: near, to: far}, {from: far, to: near}}
	for i := range pair {
		s := &pair[i]
		s.back, r.streams[int32(s.from)] = &pair[1-i], s
		err = errors.Join(err, unix.SetsockoptInt(s.from, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), r.watch(s.from, unix.EPOLLIN))
	}
	return err
}

// read takes what has arrived. A broken connection is the end of its streams.
func (r *relay) read(s *stream) {
	s.data.Grow(64 << 10)
	n, _ := unix.Read(s.from, s.data.AvailableBuffer()[:64<<10])
	n, _ = s.data.Write(s.data.AvailableBuffer()[:max(0, n)])
	if n == 0 {
		_ = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_DEL, s.from, nil)
	}
	r.pieces = append(r.pieces, piece{s, n, time.Now().Add(r.delay)})
}

// deliver passes on the pieces that are due, and sets the timer for the next one. A receiver that has left misses them.
func (r *relay) deliver() error {
	for ; len(r.pieces) > 0; r.pieces = r.pieces[1:] {
		p, s := r.pieces[0], r.pieces[0].stream
		if wait := time.Until(p.due); wait > 0 {
			return unix.TimerfdSettime(r.timer, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(wait))}, nil)
		}
		s.write(s.data.Next(p.bytes))
		if s.isOver = p.bytes == 0; s.isOver && s.back.isOver {
			_, _ = unix.Close(s.from), unix.Close(s.to)
		} else if s.isOver {
			_ = unix.Shutdown(s.to, unix.SHUT_WR)
		}
	}
	return nil
}

// write passes data on. A signal to this thread may end a call of write(2) that waits, after a part of the data.
func (s *stream) write(data []byte) {
	for len(data) > 0 {
		n, err := unix.Write(s.to, data)
		if err != nil && err != unix.EINTR {
			return
		}
		data = data[max(0, n):]
	}
}
