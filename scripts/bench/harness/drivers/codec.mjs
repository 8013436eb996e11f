// Minimal code that reads and writes the wire format: fixed fields, no checks, one exact allocation. Used by the raw
// limit, and as the baseline of scripts/bench/encode.mjs.

let pos = 0
function varint(b) {
  let v = 0,
    m = 1,
    c
  do {
    c = b[pos++]
    v += (c & 127) * m
    m *= 128
  } while (c > 127)
  return v
}
function skip(b, wt) {
  if (wt === 0) varint(b)
  else if (wt === 1) pos += 8
  else if (wt === 5) pos += 4
  else {
    const n = varint(b)
    pos += n
  }
}
function copyAs(T, b, off, len) {
  // unaligned bytes -> typed array
  const a = new T(len / T.BYTES_PER_ELEMENT)
  new Uint8Array(a.buffer).set(b.subarray(off, off + len))
  return a
}
export function decodeSample(b) {
  const sequences = []
  pos = 0
  while (pos < b.length) {
    const tag = varint(b)
    if (tag === 10) {
      const end = varint(b) + pos
      const s = { stopReason: 0, tokens: null, logprobs: null }
      while (pos < end) {
        const t = varint(b)
        if (t === 8) s.stopReason = varint(b)
        else if (t === 18) {
          const n = varint(b)
          s.tokens = copyAs(Int32Array, b, pos, n)
          pos += n
        } else if (t === 26) {
          const n = varint(b)
          s.logprobs = copyAs(Float32Array, b, pos, n)
          pos += n
        } else skip(b, t & 7)
      }
      sequences.push(s)
    } else skip(b, tag & 7)
  }
  return { sequences }
}
function decodeBatched(b, end) {
  let data = null,
    offs = null,
    dtype = 0
  while (pos < end) {
    const t = varint(b)
    if (t === 10) {
      const n = varint(b)
      data = [pos, n]
      pos += n
    } else if (t === 18) {
      const n = varint(b)
      offs = [pos, n]
      pos += n
    } else if (t === 24) dtype = varint(b)
    else skip(b, t & 7)
  }
  if (dtype !== 1) throw new Error("dtype " + dtype)
  const all = copyAs(Float32Array, b, data[0], data[1])
  const o = copyAs(Float64Array, b, offs[0], offs[1]) // int64 little endian
  const lo = new Uint32Array(o.buffer)
  const out = []
  for (let i = 0; i < o.length - 1; i++) out.push(all.subarray(lo[2 * i] / 4, lo[2 * i + 2] / 4))
  return out
}
export function decodeFwdBwd(b) {
  const outputs = [],
    metrics = {}
  pos = 0
  while (pos < b.length) {
    const tag = varint(b)
    if (tag === 18) {
      const end = varint(b) + pos
      while (pos < end) {
        const t = varint(b)
        if (t === 18) {
          // fields entry
          const e = varint(b) + pos
          let key = ""
          while (pos < e) {
            const u = varint(b)
            if (u === 10) {
              const n = varint(b)
              key = b.latin1Slice(pos, pos + n)
              pos += n
            } else if (u === 18) {
              const n = varint(b)
              for (const a of decodeBatched(b, pos + n)) outputs.push({ [key]: a })
            } else skip(b, u & 7)
          }
        } else skip(b, t & 7)
      }
    } else if (tag === 26) {
      const end = varint(b) + pos
      let k = "",
        v = 0
      while (pos < end) {
        const t = varint(b)
        if (t === 10) {
          const n = varint(b)
          k = b.latin1Slice(pos, pos + n)
          pos += n
        } else if (t === 17) {
          v = b.readDoubleLE(pos)
          pos += 8
        } else skip(b, t & 7)
      }
      metrics[k] = v
    } else skip(b, tag & 7)
  }
  return { outputs, metrics }
}

const vlen = (n) => (n < 128 ? 1 : n < 16384 ? 2 : n < 2097152 ? 3 : n < 268435456 ? 4 : 5)
const lenField = (n) => 1 + vlen(n) + n
function wv(b, v) {
  while (v > 127) {
    b[pos++] = (v & 127) | 128
    v = Math.floor(v / 128)
  }
  b[pos++] = v
}
function wt(b, tag, n) {
  b[pos++] = tag
  wv(b, n)
}

let s32 = new Int32Array(0),
  s64 = new Int32Array(0),
  sf = new Float32Array(0)
function scratch(n) {
  if (s32.length < n) {
    s32 = new Int32Array(n)
    s64 = new Int32Array(2 * n)
    sf = new Float32Array(n)
  }
}
function putI32(b, a) {
  s32.set(a)
  b.set(new Uint8Array(s32.buffer, 0, a.length * 4), pos)
  pos += a.length * 4
}
function putI64(b, a) {
  const n = a.length
  for (let i = 0; i < n; i++) {
    const v = a[i]
    s64[2 * i] = v
    s64[2 * i + 1] = v < 0 ? -1 : 0
  }
  b.set(new Uint8Array(s64.buffer, 0, n * 8), pos)
  pos += n * 8
}
function putF32(b, a) {
  if (a instanceof Float32Array) {
    b.set(new Uint8Array(a.buffer, a.byteOffset, a.byteLength), pos)
    pos += a.byteLength
    return
  }
  sf.set(a)
  b.set(new Uint8Array(sf.buffer, 0, a.length * 4), pos)
  pos += a.length * 4
}
export function encodeFwdBwd(modelId, seq, data) {
  // sizes first, then one exact allocation
  let size = lenField(modelId.length) + 1 + vlen(seq) + lenField(13)
  const sizes = []
  for (let i = 0; i < data.length; i++) {
    const n = data[i].tokens.length
    const et = lenField(n * 4),
      ch = lenField(et)
    const sh = vlen(n)
    const tt = lenField(n * 8) + 2 + 2 + sh,
      te = lenField(13) + lenField(tt)
    const ww = lenField(n * 4) + 2 + 2 + sh,
      we = lenField(7) + lenField(ww)
    const d = lenField(ch) + lenField(te) + lenField(we)
    sizes.push([et, ch, tt, te, ww, we, d, sh])
    size += lenField(d)
    scratch(n)
  }
  const b = Buffer.allocUnsafeSlow(size)
  pos = 0
  wt(b, 10, modelId.length)
  pos += b.latin1Write(modelId, pos)
  b[pos++] = 16
  wv(b, seq)
  for (let i = 0; i < data.length; i++) {
    const { tokens, targets, weights } = data[i],
      n = tokens.length
    const [et, ch, tt, te, ww, we, d, sh] = sizes[i]
    wt(b, 26, d)
    wt(b, 10, ch)
    wt(b, 10, et)
    wt(b, 10, n * 4)
    putI32(b, tokens)
    wt(b, 18, te)
    wt(b, 10, 13)
    pos += b.latin1Write("target_tokens", pos)
    wt(b, 18, tt)
    wt(b, 10, n * 8)
    putI64(b, targets)
    b[pos++] = 24
    b[pos++] = 2
    wt(b, 34, sh)
    wv(b, n)
    wt(b, 18, we)
    wt(b, 10, 7)
    pos += b.latin1Write("weights", pos)
    wt(b, 18, ww)
    wt(b, 10, n * 4)
    putF32(b, weights)
    b[pos++] = 24
    b[pos++] = 1
    wt(b, 34, sh)
    wv(b, n)
  }
  wt(b, 34, 13)
  pos += b.latin1Write("cross_entropy", pos)
  if (pos !== size) throw new Error(`size ${pos} != ${size}`)
  return b
}
