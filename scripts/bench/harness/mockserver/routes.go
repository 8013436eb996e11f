package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// API routes.

func submit(w http.ResponseWriter, c *config, id string, f *future) {
	now := time.Now()
	d := c.DelayMs
	if c.DelayJitterMs > 0 {
		d += float64(splitmix(uint64(ids.Add(1)))%1000) / 1000 * c.DelayJitterMs
	}
	f.ready = now.Add(time.Duration(d * float64(time.Millisecond)))
	f.tryLeft = c.TryAgainN
	if putOnce(id, f) {
		st.created.Add(1)
		st.outstanding.Add(1)
	} else {
		st.dupSubmit.Add(1)
	}
	b := make([]byte, 0, 96)
	b = append(b, `{"request_id":`...)
	b = strconv.AppendQuote(b, id)
	if f.kind == kSample { // the newest peer requires an id for each sequence
		b = append(b, `,"sample_sequence_ids":[`...)
		for i := 0; i < f.numSamples; i++ {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendQuote(b, id+"/"+strconv.Itoa(i))
		}
		b = append(b, ']')
	}
	b = append(b, '}')
	reply(w, 200, ctJSON, b)
}

func tryAgain(w http.ResponseWriter, c *config) {
	st.tryAgains.Add(1)
	code := 200
	if c.TryAgain408 {
		code = 408
	}
	reply(w, code, ctJSON, []byte(`{"type":"try_again","request_id":"x","queue_state":"active"}`))
}

func retrieve(ctx context.Context, w http.ResponseWriter, r *http.Request, c *config, body []byte) {
	id := jsonStr(body, `"request_id"`)
	f := lookup(id)
	if f == nil {
		st.unknownFuture.Add(1)
		reply(w, 404, ctJSON, []byte(`{"error":"unknown future"}`))
		return
	}
	f.mu.Lock()
	if f.tryLeft > 0 {
		f.tryLeft--
		f.mu.Unlock()
		tryAgain(w, c)
		return
	}
	ready := f.ready
	f.mu.Unlock()
	if wait := time.Until(ready); wait > 0 {
		hold := time.Duration(c.LongPollMs * float64(time.Millisecond))
		expired := wait > hold
		if expired {
			wait = hold
		}
		atomicMax(&st.maxHeld, st.heldPolls.Add(1))
		t := time.NewTimer(wait)
		select {
		case <-t.C:
			st.heldPolls.Add(-1)
		case <-ctx.Done():
			t.Stop()
			st.heldPolls.Add(-1)
			return
		}
		if expired {
			tryAgain(w, c)
			return
		}
		ready = time.Now() // the instant the server really finished
	}
	proto := !c.JSONOnly && strings.Contains(r.Header.Get("Accept"), "application/x-protobuf")
	var out []byte
	ct := ctJSON
	f.mu.Lock()
	if f.readyWall.IsZero() {
		f.readyWall = ready
	}
	switch f.kind {
	case kSample:
		if proto {
			out, ct = encodeSample(f), ctProto
		} else {
			out = encodeSampleJSON(f)
		}
	case kFwdBwd:
		if proto {
			out, ct = encodeFwdBwd(f, c.LogprobDType), ctProto
		} else {
			out = encodeFwdBwdJSON(f)
		}
	case kOptim:
		out = []byte(fmt.Sprintf(`{"metrics":{"seq":%d,"finish_s":%d,"finish_ns":%d}}`, f.seq, f.readyWall.Unix(), f.readyWall.Nanosecond()))
	case kCreateModel:
		out = []byte(`{"type":"create_model","model_id":"` + f.modelID + `"}`)
	case kSave:
		out = []byte(`{"type":"save_weights","path":"` + f.path + `"}`)
	case kSaveSampler:
		out = []byte(`{"type":"save_weights_for_sampler","path":"` + f.path + `","sampling_session_id":"` + f.modelID + `:sampler"}`)
	case kLoad:
		out = []byte(`{"type":"load_weights","path":"` + f.path + `"}`)
	case kUnload:
		out = []byte(`{"type":"unload_model","model_id":"` + f.modelID + `"}`)
	}
	if c.MetadataOnlyBytes > 0 && len(out) > c.MetadataOnlyBytes && bytes.HasPrefix(after(body, `"allow_metadata_only"`), []byte("true")) {
		f.mu.Unlock()
		st.metadataOnly.Add(1)
		replyJSON(w, `{"status":"complete_metadata","response_payload_size":`+strconv.Itoa(len(out))+`}`)
		return
	}
	f.delivered++
	first := f.delivered == 1
	f.mu.Unlock()
	if first {
		st.delivered.Add(1)
		st.outstanding.Add(-1)
	} else {
		st.redeliver.Add(1)
	}
	reply(w, 200, ct, out)
}

func endpoint(path string) string {
	if i := strings.Index(path, "/api/v1/"); i >= 0 {
		return path[i+8:]
	}
	return ""
}

func handle(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/__stats":
		b, _ := json.Marshal(snapshot())
		reply(w, 200, ctJSON, b)
		return
	case "/__reset":
		resetAll()
		replyJSON(w, `{"ok":true}`)
		return
	case "/__ctl": // merge into flags' base configuration; empty body restores it
		n := *baseCfg
		if b, _ := io.ReadAll(r.Body); len(bytes.TrimSpace(b)) > 0 {
			if err := json.Unmarshal(b, &n); err != nil {
				reply(w, 400, ctJSON, []byte(`{"error":`+strconv.Quote(err.Error())+`}`))
				return
			}
		}
		cfgPtr.Store(&n)
		b, _ := json.Marshal(n)
		reply(w, 200, ctJSON, b)
		return
	}
	c := cfg()
	ep := endpoint(r.URL.Path)
	if ep == "" {
		reply(w, 404, ctJSON, []byte(`{"error":"not found"}`))
		return
	}
	bump(&pathCnt, ep)
	if r.ProtoMajor >= 2 {
		st.h2.Add(1)
	} else {
		st.h1.Add(1)
	}
	atomicMax(&st.maxInflight, st.inflight.Add(1))
	defer st.inflight.Add(-1)

	bp, err := readBody(r)
	defer func() {
		if cap(*bp) <= 16<<20 {
			bufPool.Put(bp)
		}
	}()
	if err != nil {
		return
	}
	body := *bp
	isSubmit := ep == "forward_backward" || ep == "forward" || ep == "optim_step"
	if isSubmit {
		atomicMax(&st.maxSubmitInflight, st.submitInflight.Add(1))
		defer st.submitInflight.Add(-1)
	}
	if c.LatencyMs > 0 {
		time.Sleep(time.Duration(c.LatencyMs * float64(time.Millisecond)))
	}

	switch fk := pickFault(c, ep); fk {
	case "":
	case "reset":
		bump(&faultCnt, fk+"@"+ep)
		resetConn(w)
		return
	case "reset_after":
		bump(&faultCnt, fk+"@"+ep)
		route(ep, &sink{h: http.Header{}}, r, c, body)
		resetConn(w)
		return
	default:
		bump(&faultCnt, fk+"@"+ep)
		code, _ := strconv.Atoi(fk)
		if c.RetryAfter != "" && (code == 429 || code == 503) {
			w.Header().Set("Retry-After", c.RetryAfter)
		}
		reply(w, code, ctJSON, []byte(`{"error":"injected fault","queue_state":"active"}`))
		return
	}
	route(ep, w, r, c, body)
}

type sink struct{ h http.Header }

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

func str(b []byte, def string) string {
	if len(b) == 0 {
		return def
	}
	return string(b)
}

func route(ep string, w http.ResponseWriter, r *http.Request, c *config, body []byte) {
	switch ep {
	case "retrieve_future":
		retrieve(r.Context(), w, r, c, body)
	case "asample":
		sid := str(jsonStr(body, `"sampling_session_id"`), "anon")
		seq := jsonInt(body, `"seq_id"`, -1)
		if seq < 0 {
			seq = ids.Add(1)
		}
		f := &future{kind: kSample, seq: seq,
			outTokens:  int(jsonInt(body, `"max_tokens"`, int64(c.OutTokens))),
			numSamples: int(jsonInt(body, `"num_samples"`, 1)),
			topk:       int(jsonInt(body, `"topk_prompt_logprobs"`, 0))}
		if toks := after(body, `"tokens"`); toks != nil {
			n, _ := parseInt(toks)
			f.echo = int32(n)
			f.wantPromptLP = bytes.HasPrefix(after(body, `"prompt_logprobs"`), []byte("true"))
			if f.wantPromptLP || f.topk > 0 {
				if e := bytes.IndexByte(toks, ']'); e > 0 {
					f.promptLen = bytes.Count(toks[:e], []byte{','}) + 1
				}
			}
		}
		submit(w, c, sid+":"+strconv.FormatInt(seq, 10), f)
	case "forward_backward", "forward":
		f := &future{kind: kFwdBwd}
		var model string
		ct := r.Header.Get("Content-Type")
		switch {
		case strings.Contains(r.Header.Get("Content-Encoding"), "zstd"):
			// std lib cannot inflate zstd: synthesize the shape
			model, f.seq = "zstd", ids.Add(1)
			f.lens = make([]int32, c.ZstdDatums)
			for i := range f.lens {
				f.lens[i] = int32(c.ZstdTokens)
			}
		case strings.Contains(ct, "protobuf"):
			var ok bool
			model, f.seq, f.lens, ok = parseFwdBwd(body)
			if !ok {
				reply(w, 400, ctJSON, []byte(`{"error":"bad proto"}`))
				return
			}
			trackSeq(model, f.seq)
		default: // JSON body
			model = str(jsonStr(body, `"model_id"`), "anon")
			f.seq = jsonInt(body, `"seq_id"`, -1)
			rest := body
			for {
				i := bytes.Index(rest, []byte(`"tokens"`))
				if i < 0 {
					break
				}
				rest = rest[i:]
				e := bytes.IndexByte(rest, ']')
				if e < 0 {
					break
				}
				f.lens = append(f.lens, int32(bytes.Count(rest[:e], []byte{','})+1))
				rest = rest[e:]
			}
			trackSeq(model, f.seq)
		}
		submit(w, c, model+":"+strconv.FormatInt(f.seq, 10), f)
	case "optim_step", "save_weights", "save_weights_for_sampler", "load_weights", "unload_model":
		model := str(jsonStr(body, `"model_id"`), "anon")
		seq := jsonInt(body, `"seq_id"`, -1)
		if seq < 0 {
			seq = 1_000_000 + ids.Add(1)
		} else {
			trackSeq(model, seq)
		}
		f := &future{seq: seq, modelID: model}
		name := str(jsonStr(body, `"path"`), "ephemeral")
		switch ep {
		case "optim_step":
			f.kind = kOptim
		case "save_weights":
			f.kind, f.path = kSave, "tinker://"+model+"/weights/"+name
		case "save_weights_for_sampler":
			f.kind, f.path = kSaveSampler, "tinker://"+model+"/sampler_weights/"+name
		case "load_weights":
			f.kind, f.path = kLoad, name
		case "unload_model":
			f.kind = kUnload
		}
		submit(w, c, model+":"+strconv.FormatInt(seq, 10), f)
	case "create_model":
		sid := str(jsonStr(body, `"session_id"`), "anon")
		m := sid + ":train:" + strconv.FormatInt(jsonInt(body, `"model_seq_id"`, ids.Add(1)), 10)
		submit(w, c, m+":create", &future{kind: kCreateModel, modelID: m})
	case "create_session":
		replyJSON(w, `{"type":"create_session","session_id":"sess-`+strconv.FormatInt(ids.Add(1), 10)+`"}`)
	case "create_sampling_session":
		sid := str(jsonStr(body, `"session_id"`), "anon")
		replyJSON(w, `{"type":"create_sampling_session","sampling_session_id":"`+sid+":sample:"+strconv.FormatInt(ids.Add(1), 10)+`"}`)
	case "session_heartbeat":
		replyJSON(w, `{"type":"session_heartbeat"}`)
	case "client/config":
		b, _ := json.Marshal(c.ClientConfig)
		reply(w, 200, ctJSON, b)
	case "client/dynamic_config":
		replyJSON(w, `{"refresh_interval_sec":300}`)
	case "telemetry":
		st.telemetryEvents.Add(int64(bytes.Count(body, []byte(`"event_id"`))))
		replyJSON(w, `{"status":"accepted"}`)
	case "get_info":
		m := str(jsonStr(body, `"model_id"`), "anon")
		replyJSON(w, `{"type":"get_info","model_id":"`+m+`","is_lora":true,"lora_rank":32,"model_name":"mock/base","model_data":{"arch":"mock","model_name":"mock/base","tokenizer_id":"mock/base"}}`)
	case "get_server_capabilities":
		replyJSON(w, `{"supported_models":[{"model_name":"mock/base","max_context_length":32768}]}`)
	case "healthz":
		replyJSON(w, `{"status":"ok"}`)
	case "weights_info":
		replyJSON(w, `{"base_model":"mock/base","is_lora":true,"lora_rank":32}`)
	default:
		if strings.HasPrefix(ep, "samplers/") {
			replyJSON(w, `{"sampler_id":"`+ep[9:]+`","base_model":"mock/base"}`)
			return
		}
		reply(w, 404, ctJSON, []byte(`{"error":"not implemented in mock"}`))
	}
}
