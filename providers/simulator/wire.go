package simulator

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

const cutWriteTimeout = 5 * time.Second

// takeConnection takes the connection from the HTTP server. Where that is
// impossible (HTTP/2, a recorder), the handler panics with ErrAbortHandler,
// which closes the stream.
func takeConnection(w http.ResponseWriter) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return conn
}

// closeConnection ends the connection, with a reset where the rule says so.
func closeConnection(conn net.Conn, reset bool) {
	if inner, ok := conn.(interface{ NetConn() net.Conn }); ok && reset {
		conn = inner.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0) // without it the close below is an orderly one
	}
	_ = conn.Close() // nobody is left to tell
}

// drop closes the connection without a byte.
func (s *Server) drop(w http.ResponseWriter, x *exchange) {
	s.hangUp(w, x, func() {})
}

// hangUp closes the connection without a byte and goes on with what is left to
// do, also where the connection can only be closed by a panic.
func (s *Server) hangUp(w http.ResponseWriter, x *exchange, then func()) {
	s.setAnswer(x, answerNone)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		then()
		panic(http.ErrAbortHandler)
	}
	closeConnection(conn, x.rule.Reset)
	then()
}

// cutShort sends status, headers and n bytes of the body, then closes.
func (s *Server) cutShort(w http.ResponseWriter, x *exchange, a answer, n int) {
	a = s.dress(x, a)
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\r\n", a.status, http.StatusText(a.status))
	_ = a.header.Write(&out) // a buffer does not fail
	out.WriteString("\r\n")
	out.Write(a.body[:min(n, len(a.body))])

	s.setAnswer(x, strconv.Itoa(a.status))
	conn := takeConnection(w)
	_ = conn.SetWriteDeadline(time.Now().Add(cutWriteTimeout)) // the write below fails in its place
	if _, err := conn.Write(out.Bytes()); err != nil {
		s.setAnswer(x, answerNone)
	}
	closeConnection(conn, x.rule.Reset)
}
