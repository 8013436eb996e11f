package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
)

// Bodies are drained into pooled buffers and scanned for a few keys only.

var bufPool = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

func readBody(r *http.Request) (*[]byte, error) {
	bp := bufPool.Get().(*[]byte)
	b := (*bp)[:0]
	if n := r.ContentLength; n > 0 {
		if int64(cap(b)) < n {
			b = make([]byte, 0, n+n/8)
		}
		b = b[:n]
		m, err := io.ReadFull(r.Body, b)
		*bp = b[:m]
		st.bodyIn.Add(int64(m))
		return bp, err
	}
	for {
		if len(b) == cap(b) {
			nb := make([]byte, len(b), 2*cap(b)+4096)
			copy(nb, b)
			b = nb
		}
		m, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+m]
		if err != nil {
			*bp = b
			st.bodyIn.Add(int64(len(b)))
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return bp, err
		}
	}
}

// after returns the bytes following `"key"` + optional blanks + ':' + optional blanks.
func after(b []byte, quotedKey string) []byte {
	i := bytes.Index(b, []byte(quotedKey))
	if i < 0 {
		return nil
	}
	b = b[i+len(quotedKey):]
	for len(b) > 0 && (b[0] == ' ' || b[0] == ':' || b[0] == '\n' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

func jsonStr(b []byte, quotedKey string) []byte {
	v := after(b, quotedKey)
	if len(v) == 0 || v[0] != '"' {
		return nil
	}
	if j := bytes.IndexByte(v[1:], '"'); j >= 0 {
		return v[1 : 1+j]
	}
	return nil
}

func parseInt(v []byte) (n int64, ok bool) {
	neg := false
	for len(v) > 0 && (v[0] == ' ' || v[0] == '[' || v[0] == '\n') {
		v = v[1:]
	}
	if len(v) > 0 && v[0] == '-' {
		neg = true
		v = v[1:]
	}
	for len(v) > 0 && v[0] >= '0' && v[0] <= '9' {
		n = n*10 + int64(v[0]-'0')
		v = v[1:]
		ok = true
	}
	if neg {
		n = -n
	}
	return
}

func jsonInt(b []byte, quotedKey string, def int64) int64 {
	if n, ok := parseInt(after(b, quotedKey)); ok {
		return n
	}
	return def
}
