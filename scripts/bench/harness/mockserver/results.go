package main

import (
	"encoding/binary"
	"math"
	"strconv"
)

// Results of futures. A sample contains a self-check: its tokens echo the prompt and contain the completion time.

var lpTable [4096]float32

func lp(i int) float32 { return lpTable[i&4095] }

func token(echo int32, i int) int32 {
	return int32((uint32(echo)*2654435761 + uint32(i)*40503) % 151936)
}

// Sample tokens carry a self-check and the completion timestamp:
// [0] echo of the first prompt token, [1] unix seconds, [2] nanoseconds, rest pseudo random.
func sampleTokens(f *future) []int32 {
	t := make([]int32, f.outTokens)
	for i := range t {
		t[i] = token(f.echo, i)
	}
	if f.outTokens > 0 {
		t[0] = f.echo
	}
	if f.outTokens > 2 {
		t[1] = int32(f.readyWall.Unix())
		t[2] = int32(f.readyWall.Nanosecond())
	}
	return t
}

func encodeSample(f *future) []byte {
	n := f.outTokens
	seq := make([]byte, 0, n*8+32)
	seq = pbVarint(seq, 1, 1) // length
	raw := make([]byte, 0, n*4)
	for _, t := range sampleTokens(f) {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(t))
	}
	seq = pbBytes(seq, 2, raw)
	raw = raw[:0]
	for i := 0; i < n; i++ {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(lp(i)))
	}
	seq = pbBytes(seq, 3, raw)
	out := make([]byte, 0, f.numSamples*(len(seq)+8)+f.promptLen*4*f.topkOr(0)*2+64)
	for i := 0; i < f.numSamples; i++ {
		out = pbBytes(out, 1, seq)
	}
	if f.wantPromptLP {
		p := make([]byte, 0, 4*f.promptLen)
		for i := 0; i < f.promptLen; i++ {
			v := lp(i)
			if i == 0 {
				v = float32(math.NaN())
			}
			p = binary.LittleEndian.AppendUint32(p, math.Float32bits(v))
		}
		out = pbBytes(out, 2, p)
	}
	if f.topk > 0 {
		ids := make([]byte, f.promptLen*f.topk*4)
		lps := make([]byte, f.promptLen*f.topk*4)
		var m []byte
		m = pbBytes(m, 1, ids)
		m = pbBytes(m, 2, lps)
		m = pbVarint(m, 3, uint64(f.topk))
		m = pbVarint(m, 4, uint64(f.promptLen))
		out = pbBytes(out, 3, m)
	}
	return out
}

func (f *future) topkOr(d int) int {
	if f.topk > 0 {
		return f.topk
	}
	return d
}

var fbMetrics = []struct {
	k string
	v float64
}{{"loss:sum", 1.25}, {"tokens:sum", 100}, {"clock_cycle:unique", 7}, {"mfu:mean", 0.5}, {"lag:max", 3}, {"skew:slack", 0.1}}

func encodeFwdBwd(f *future, dt string) []byte {
	total := 0
	for _, n := range f.lens {
		total += int(n)
	}
	esz, code := 4, uint64(1)
	if dt == "bfloat16" {
		esz, code = 2, 4
	}
	// Sizes first, then one exact allocation: this is the mock's only large encode.
	nd := len(f.lens)
	dataLen, offLen := total*esz, 8*(nd+1)
	lf := func(n int) int { return 1 + uvlen(uint64(n)) + n }
	bt := lf(dataLen) + lf(offLen) + 2
	entry := lf(8) + lf(bt)
	rec := lf(len(recType)) + lf(entry) + 1 + uvlen(uint64(nd))
	out := make([]byte, 0, lf(len(recType))+lf(rec)+len(fbMetricBytes))
	out = pbStr(out, 1, recType)
	out = binary.AppendUvarint(pbTag(out, 2, 2), uint64(rec))
	out = pbStr(out, 1, recType)
	out = binary.AppendUvarint(pbTag(out, 2, 2), uint64(entry))
	out = pbStr(out, 1, "logprobs")
	out = binary.AppendUvarint(pbTag(out, 2, 2), uint64(bt))
	out = binary.AppendUvarint(pbTag(out, 1, 2), uint64(dataLen))
	for d, n := range f.lens {
		off := d + int(f.seq)
		if esz == 2 {
			for i := 0; i < int(n); i++ {
				out = binary.LittleEndian.AppendUint16(out, uint16(math.Float32bits(lp(i+off))>>16))
			}
			continue
		}
		for left, at := int(n), off&4095; left > 0; { // memcpy out of the prebuilt table
			k := min(left, 4096-at)
			out = append(out, lpBytes[4*at:4*(at+k)]...)
			left, at = left-k, 0
		}
	}
	out = binary.AppendUvarint(pbTag(out, 2, 2), uint64(offLen))
	sum := uint64(0)
	out = binary.LittleEndian.AppendUint64(out, 0)
	for _, n := range f.lens {
		sum += uint64(int(n) * esz)
		out = binary.LittleEndian.AppendUint64(out, sum)
	}
	out = pbVarint(out, 3, code)
	out = pbVarint(out, 3, uint64(nd))
	return append(out, fbMetricBytes...)
}

const recType = "mock:ArrayRecord"

var (
	fbMetricBytes []byte
	lpBytes       []byte
)

func uvlen(v uint64) int {
	n := 1
	for v >= 128 {
		v >>= 7
		n++
	}
	return n
}

func initTables() {
	for i := range lpTable {
		lpTable[i] = -float32(splitmix(uint64(i))%8000) / 1000
		lpBytes = binary.LittleEndian.AppendUint32(lpBytes, math.Float32bits(lpTable[i]))
	}
	for _, m := range fbMetrics {
		e := pbStr(nil, 1, m.k)
		e = binary.LittleEndian.AppendUint64(pbTag(e, 2, 1), math.Float64bits(m.v))
		fbMetricBytes = pbBytes(fbMetricBytes, 3, e)
	}
}

func jsonFloats(b []byte, n, off int) []byte {
	b = append(b, '[')
	for i := 0; i < n; i++ {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(lp(i+off)), 'g', -1, 32)
	}
	return append(b, ']')
}

func encodeSampleJSON(f *future) []byte {
	b := []byte(`{"type":"sample","sequences":[`)
	for s := 0; s < f.numSamples; s++ {
		if s > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"stop_reason":"length","tokens":[`...)
		for i, t := range sampleTokens(f) {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(t), 10)
		}
		b = append(b, `],"logprobs":`...)
		b = jsonFloats(b, f.outTokens, 0)
		b = append(b, '}')
	}
	b = append(b, ']')
	if f.wantPromptLP {
		b = append(b, `,"prompt_logprobs":`...)
		b = jsonFloats(b, f.promptLen, 0)
	}
	return append(b, `,"prompt_cache_hit_tokens":0}`...)
}

func encodeFwdBwdJSON(f *future) []byte {
	b := []byte(`{"loss_fn_output_type":"ArrayRecord","loss_fn_outputs":[`)
	for d, n := range f.lens {
		if d > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"logprobs":{"data":`...)
		b = jsonFloats(b, int(n), d+int(f.seq))
		b = append(b, `,"dtype":"float32","shape":[`...)
		b = strconv.AppendInt(b, int64(n), 10)
		b = append(b, `]}}`...)
	}
	b = append(b, `],"metrics":{`...)
	for i, m := range fbMetrics {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, m.k)
		b = append(b, ':')
		b = strconv.AppendFloat(b, m.v, 'g', -1, 64)
	}
	return append(b, `}}`...)
}
