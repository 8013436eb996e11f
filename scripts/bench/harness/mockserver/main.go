// Mock Tinker API server for benchmarks. Standard library only.
//
// Design goals: never be the bottleneck (request bodies are drained into pooled
// buffers and only scanned for the few fields the mock needs), deterministic,
// and fully steerable at run time through POST /__ctl.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

type countConn struct{ net.Conn }

func (c *countConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	st.bytesIn.Add(int64(n))
	return n, err
}
func (c *countConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	st.bytesOut.Add(int64(n))
	return n, err
}

type countListener struct{ net.Listener }

func (l countListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countConn{c}, nil
}

// selfSigned creates a temporary CA and a leaf certificate for loopback, and writes the CA to out.
func selfSigned(out string) tls.Certificate {
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	from, to := time.Now().Add(-time.Hour), time.Now().Add(48*time.Hour)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mock CA"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: from, NotAfter: to,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	caDer, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	must(err)
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	must(err)
	if out != "" {
		must(os.WriteFile(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDer}), 0o644))
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func main() {
	initTables()
	c := defaultConfig()
	addr := flag.String("addr", "127.0.0.1:0", "listen address (HTTP/1.1 and h2c); loopback only")
	tlsAddr := flag.String("tls-addr", "", "optional TLS listen address (ALPN h2 + http/1.1, self-signed)")
	certOut := flag.String("tls-cert-out", "", "write the self-signed certificate (PEM) here")
	flag.Float64Var(&c.DelayMs, "delay-ms", c.DelayMs, "time from submit to completion of a future")
	flag.Float64Var(&c.DelayJitterMs, "delay-jitter-ms", c.DelayJitterMs, "uniform extra completion delay")
	flag.Float64Var(&c.LongPollMs, "longpoll-ms", c.LongPollMs, "longest time a retrieve is held before try_again")
	flag.IntVar(&c.TryAgainN, "try-again", c.TryAgainN, "first N retrieves of a future answer try_again immediately")
	flag.BoolVar(&c.TryAgain408, "try-again-408", c.TryAgain408, "send try_again as HTTP 408")
	flag.Float64Var(&c.LatencyMs, "latency-ms", c.LatencyMs, "latency added to every response")
	flag.IntVar(&c.OutTokens, "out-tokens", c.OutTokens, "sampled tokens when the request has no max_tokens")
	flag.IntVar(&c.FaultPermille, "fault-permille", c.FaultPermille, "fault probability in 1/1000 (seeded, reproducible)")
	flag.IntVar(&c.FaultEvery, "fault-every", c.FaultEvery, "every Nth eligible request fails")
	kinds := flag.String("fault-kinds", strings.Join(c.FaultKinds, ","), "429,500,503,408,reset,reset_after")
	paths := flag.String("fault-paths", strings.Join(c.FaultPaths, ","), "endpoints that may fail")
	flag.StringVar(&c.RetryAfter, "retry-after", c.RetryAfter, "Retry-After value on 429/503")
	flag.BoolVar(&c.JSONOnly, "json-only", c.JSONOnly, "never answer protobuf")
	flag.IntVar(&c.MetadataOnlyBytes, "metadata-only-bytes", c.MetadataOnlyBytes, "payloads above this size answer complete_metadata first")
	flag.StringVar(&c.LogprobDType, "logprob-dtype", c.LogprobDType, "float32 or bfloat16")
	cc := flag.String("client-config", "", "JSON object served by /client/config")
	flag.Parse()
	c.FaultKinds, c.FaultPaths = strings.Split(*kinds, ","), strings.Split(*paths, ",")
	if *cc != "" {
		if err := json.Unmarshal([]byte(*cc), &c.ClientConfig); err != nil {
			log.Fatal(err)
		}
	}
	baseCfg = c
	cfgPtr.Store(c)
	resetAll()
	debug.SetGCPercent(400)

	srv := &http.Server{Handler: http.HandlerFunc(handle), ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				st.conns.Add(1)
				st.openConns.Add(1)
			case http.StateClosed:
				st.openConns.Add(-1)
			}
		}}
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	srv.Protocols = p
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1000}

	ln, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	tlsName := ""
	if *tlsAddr != "" {
		tl, err := net.Listen("tcp", *tlsAddr)
		if err != nil {
			log.Fatal(err)
		}
		tlsName = tl.Addr().String()
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{selfSigned(*certOut)}, NextProtos: []string{"h2", "http/1.1"}}
		go func() { _ = srv.ServeTLS(countListener{tl}, "", "") }()
	}
	fmt.Printf("{\"addr\":%q,\"tls_addr\":%q}\n", ln.Addr().String(), tlsName)
	go func() {
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT)
		<-ch
		os.Exit(0)
	}()
	log.Fatal(srv.Serve(countListener{ln}))
}
