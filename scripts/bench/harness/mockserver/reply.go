package main

import (
	"net"
	"net/http"
	"strconv"
)

// Responses and faults.

var (
	ctJSON  = []string{"application/json"}
	ctProto = []string{"application/x-protobuf"}
)

func reply(w http.ResponseWriter, code int, ct []string, body []byte) {
	h := w.Header()
	h["Content-Type"] = ct
	h["Date"] = nil
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(code)
	st.bodyOut.Add(int64(len(body)))
	_, _ = w.Write(body)
}

func replyJSON(w http.ResponseWriter, s string) { reply(w, 200, ctJSON, []byte(s)) }

func resetConn(w http.ResponseWriter) {
	if hj, ok := w.(http.Hijacker); ok {
		if c, _, err := hj.Hijack(); err == nil {
			for {
				if cc, ok := c.(*countConn); ok {
					c = cc.Conn
					continue
				}
				break
			}
			if tc, ok := c.(*net.TCPConn); ok {
				_ = tc.SetLinger(0)
			}
			_ = c.Close()
			st.openConns.Add(-1)
			return
		}
	}
	panic(http.ErrAbortHandler) // HTTP/2: RST_STREAM
}

func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

func pickFault(c *config, ep string) string {
	if c.FaultPermille <= 0 && c.FaultEvery <= 0 || len(c.FaultKinds) == 0 {
		return ""
	}
	ok := false
	for _, p := range c.FaultPaths {
		if p == ep {
			ok = true
			break
		}
	}
	if !ok {
		return ""
	}
	// Counted per endpoint, so that every client gets the same faults at the same places, whatever the order of its
	// requests.
	n := uint64(eligible(ep).Add(1))
	r := splitmix(n + splitmix(uint64(len(ep))))
	if c.FaultEvery > 0 {
		if n%uint64(c.FaultEvery) != 0 {
			return ""
		}
	} else if int(r%1000) >= c.FaultPermille {
		return ""
	}
	return c.FaultKinds[int((r>>20)%uint64(len(c.FaultKinds)))]
}
