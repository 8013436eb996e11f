package main

import (
	"sync"
	"sync/atomic"
	"syscall"
)

// Counters.

type stats struct {
	bytesIn, bytesOut, bodyIn, bodyOut       atomic.Int64
	conns, openConns                         atomic.Int64
	h1, h2                                   atomic.Int64
	created, dupSubmit, delivered, redeliver atomic.Int64
	outstanding, heldPolls, maxHeld          atomic.Int64
	tryAgains, metadataOnly, unknownFuture   atomic.Int64
	telemetryEvents                          atomic.Int64
	inflight, maxInflight                    atomic.Int64
	submitInflight, maxSubmitInflight        atomic.Int64
}

var (
	st          stats
	pathCnt     sync.Map // endpoint -> *atomic.Int64
	faultCnt    sync.Map // "kind@endpoint" -> *atomic.Int64
	eligibleCnt sync.Map // endpoint -> *atomic.Int64: requests that could have failed
	cpu0        float64
	seqMu       sync.Mutex
	seqs        = map[string]*seqTrack{}
	ids         atomic.Int64
)

type seqTrack struct {
	seen       map[int64]int
	last, max  int64
	outOfOrder int
	dups       int
}

func bump(m *sync.Map, k string) {
	v, ok := m.Load(k)
	if !ok {
		v, _ = m.LoadOrStore(k, new(atomic.Int64))
	}
	v.(*atomic.Int64).Add(1)
}

func eligible(ep string) *atomic.Int64 {
	v, ok := eligibleCnt.Load(ep)
	if !ok {
		v, _ = eligibleCnt.LoadOrStore(ep, new(atomic.Int64))
	}
	return v.(*atomic.Int64)
}

func dumpMap(m *sync.Map) map[string]int64 {
	o := map[string]int64{}
	m.Range(func(k, v any) bool { o[k.(string)] = v.(*atomic.Int64).Load(); return true })
	return o
}

func atomicMax(dst *atomic.Int64, v int64) {
	for {
		c := dst.Load()
		if v <= c || dst.CompareAndSwap(c, v) {
			return
		}
	}
}

func cpuSeconds() float64 {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return float64(ru.Utime.Sec+ru.Stime.Sec) + float64(ru.Utime.Usec+ru.Stime.Usec)/1e6
}

func trackSeq(model string, seq int64) {
	seqMu.Lock()
	t := seqs[model]
	if t == nil {
		t = &seqTrack{seen: map[int64]int{}}
		seqs[model] = t
	}
	if t.seen[seq] > 0 {
		t.dups++
	} else {
		if t.last != 0 && seq != t.last+1 {
			t.outOfOrder++
		}
		t.last = seq
		if seq > t.max {
			t.max = seq
		}
	}
	t.seen[seq]++
	seqMu.Unlock()
}

func snapshot() map[string]any {
	seqMu.Lock()
	var unique, gaps, dups, ooo int
	for _, t := range seqs {
		unique += len(t.seen)
		gaps += int(t.max) - len(t.seen)
		dups += t.dups
		ooo += t.outOfOrder
	}
	seqMu.Unlock()
	return map[string]any{
		"cpu_s": cpuSeconds() - cpu0, "bytes_in": st.bytesIn.Load(), "bytes_out": st.bytesOut.Load(),
		"body_in": st.bodyIn.Load(), "body_out": st.bodyOut.Load(),
		"conns": st.conns.Load(), "open_conns": st.openConns.Load(), "http1": st.h1.Load(), "http2": st.h2.Load(),
		"futures_created": st.created.Load(), "dup_submits": st.dupSubmit.Load(),
		"delivered": st.delivered.Load(), "redelivered": st.redeliver.Load(),
		"outstanding": st.outstanding.Load(), "held_polls": st.heldPolls.Load(), "max_held_polls": st.maxHeld.Load(),
		"try_agains": st.tryAgains.Load(), "metadata_only": st.metadataOnly.Load(), "unknown_future": st.unknownFuture.Load(),
		"telemetry_events": st.telemetryEvents.Load(), "max_inflight": st.maxInflight.Load(),
		"max_submit_inflight": st.maxSubmitInflight.Load(),
		"requests":            dumpMap(&pathCnt), "faults": dumpMap(&faultCnt),
		"train_seq": map[string]int{"unique": unique, "gaps": gaps, "dups": dups, "out_of_order": ooo},
	}
}

func resetAll() {
	for i := range shards {
		shards[i].mu.Lock()
		shards[i].m = map[string]*future{}
		shards[i].mu.Unlock()
	}
	for _, a := range []*atomic.Int64{&st.bytesIn, &st.bytesOut, &st.bodyIn, &st.bodyOut, &st.conns, &st.h1, &st.h2,
		&st.created, &st.dupSubmit, &st.delivered, &st.redeliver, &st.outstanding, &st.maxHeld, &st.tryAgains,
		&st.metadataOnly, &st.unknownFuture, &st.telemetryEvents, &st.maxInflight, &st.maxSubmitInflight} {
		a.Store(0)
	}
	pathCnt.Clear()
	faultCnt.Clear()
	eligibleCnt.Clear()
	seqMu.Lock()
	seqs = map[string]*seqTrack{}
	seqMu.Unlock()
	cpu0 = cpuSeconds()
}
