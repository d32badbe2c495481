/** More than the largest record. */
const CHUNK_BYTES = 2 ** 18
/** Positions are counted in words, so that 32 bits reach 16 GiB. */
const WORD = 4
/** State, and the bytes of key and value. */
const HEAD_BYTES = 6
const MAX_TEXT_BYTES = 0xffff
const MIN_SLOTS = 1024
/**
 * A random seed of the hash. Users choose the names that are keys: with a known seed they could choose names that share
 * a slot.
 */
const SEED = Math.trunc(Math.random() * 2 ** 32)

const PRESENT = 1
const DELETED = 0

interface Chunk {
  bytes: Buffer
  used: number
}

/**
 * Maps texts to texts, in memory outside of the heap. An entry takes the bytes of its key and its value in UTF-8, and
 * 18 bytes at most. A Map of strings takes about 130 bytes in addition. Key and value may have 65,535 bytes each. The
 * memory of an entry that is deleted, or set to another value, is free only when the map itself is garbage-collected.
 */
export class CompactMap {
  readonly #chunks: Chunk[] = []
  /** Open addressing: the position of a record, plus one. */
  #slots = new Uint32Array(MIN_SLOTS)
  #filled = 0
  #size = 0
  /** The key that is looked for. */
  #wanted = Buffer.allocUnsafe(256)

  get size(): number {
    return this.#size
  }

  /** Returns the position of the entry, which stays until the entry is set to another value. */
  set(key: string, value: string): number {
    const length = this.#want(key)
    const slot = this.#slotOf(length)
    const before = this.#at(slot)
    const isPresent = before >= 0 && this.#stateAt(before) === PRESENT
    if (isPresent && this.valueAt(before) === value) return before
    const position = this.#append(length, value)
    this.#slots[slot] = position + 1
    if (isPresent) this.#setStateAt(before, DELETED)
    else this.#size++
    if (before < 0) this.#grow(++this.#filled)
    return position
  }

  get(key: string): string | undefined {
    const position = this.#find(key)
    return position === undefined ? undefined : this.valueAt(position)
  }

  delete(key: string): void {
    const position = this.#find(key)
    if (position === undefined) return
    this.#setStateAt(position, DELETED)
    this.#size--
  }

  /** Returns the key of an entry. `position` is the value that `set` has returned. */
  keyAt(position: number): string {
    const { bytes, at, keyLength } = this.#recordAt(position)
    return bytes.toString('utf8', at + HEAD_BYTES, at + HEAD_BYTES + keyLength)
  }

  valueAt(position: number): string {
    const { bytes, at, keyLength, valueLength } = this.#recordAt(position)
    const start = at + HEAD_BYTES + keyLength
    return bytes.toString('utf8', start, start + valueLength)
  }

  /** The entries, in the order in which the values were set. Skips an entry that is deleted during the iteration. */
  *entries(): Generator<[key: string, value: string]> {
    for (const position of this.#positions())
      if (this.#stateAt(position) === PRESENT) yield [this.keyAt(position), this.valueAt(position)]
  }

  *#positions(): Generator<number> {
    for (const [index, { bytes, used }] of this.#chunks.entries())
      for (let at = 0; at < used; at += recordBytes(bytes.readUInt16LE(at + 2), bytes.readUInt16LE(at + 4)))
        yield (index * CHUNK_BYTES + at) / WORD
  }

  #find(key: string): number | undefined {
    const position = this.#at(this.#slotOf(this.#want(key)))
    return position >= 0 && this.#stateAt(position) === PRESENT ? position : undefined
  }

  /** Writes the key to `#wanted`, where it can be compared, and returns its length in bytes. */
  #want(key: string): number {
    const most = key.length * 3
    if (most > this.#wanted.length) this.#wanted = Buffer.allocUnsafe(most * 2)
    return this.#wanted.write(key)
  }

  /** Returns the position in a slot, or -1 if the slot is free. */
  #at(slot: number): number {
    return (this.#slots[slot] ?? 0) - 1
  }

  /** Returns the slot of the wanted key, or the free slot where it belongs. */
  #slotOf(length: number): number {
    const mask = this.#slots.length - 1
    let slot = hashOf(this.#wanted, 0, length) & mask
    while (this.#at(slot) >= 0 && !this.#isWanted(this.#at(slot), length)) slot = (slot + 1) & mask
    return slot
  }

  #isWanted(position: number, length: number): boolean {
    const { bytes, at, keyLength } = this.#recordAt(position)
    const start = at + HEAD_BYTES
    return keyLength === length && bytes.compare(this.#wanted, 0, length, start, start + keyLength) === 0
  }

  #append(keyLength: number, value: string): number {
    const valueLength = Buffer.byteLength(value)
    if (keyLength > MAX_TEXT_BYTES || valueLength > MAX_TEXT_BYTES)
      throw new RangeError(`a text has ${Math.max(keyLength, valueLength)} bytes, more than ${MAX_TEXT_BYTES}`)
    const { bytes, at, position } = this.#allocate(recordBytes(keyLength, valueLength))
    bytes.writeUInt8(PRESENT, at)
    bytes.writeUInt16LE(keyLength, at + 2)
    bytes.writeUInt16LE(valueLength, at + 4)
    this.#wanted.copy(bytes, at + HEAD_BYTES, 0, keyLength)
    bytes.write(value, at + HEAD_BYTES + keyLength)
    return position
  }

  #allocate(size: number): { bytes: Buffer; at: number; position: number } {
    let last = this.#chunks.at(-1)
    if (last === undefined || last.used + size > CHUNK_BYTES) {
      last = { bytes: Buffer.allocUnsafeSlow(CHUNK_BYTES), used: 0 }
      this.#chunks.push(last)
    }
    const at = last.used
    last.used += size
    return { bytes: last.bytes, at, position: ((this.#chunks.length - 1) * CHUNK_BYTES + at) / WORD }
  }

  /** Grows the table when more than three quarters of its slots are filled. */
  #grow(filled: number): void {
    if (filled * 4 <= this.#slots.length * 3) return
    const before = this.#slots
    const slots = new Uint32Array(before.length * 2)
    const mask = slots.length - 1
    for (const entry of before) {
      if (entry === 0) continue
      const { bytes, at, keyLength } = this.#recordAt(entry - 1)
      let slot = hashOf(bytes, at + HEAD_BYTES, at + HEAD_BYTES + keyLength) & mask
      while (slots[slot] !== 0) slot = (slot + 1) & mask
      slots[slot] = entry
    }
    this.#slots = slots
  }

  #recordAt(position: number): { bytes: Buffer; at: number; keyLength: number; valueLength: number } {
    const { bytes, at } = this.#placeOf(position)
    return { bytes, at, keyLength: bytes.readUInt16LE(at + 2), valueLength: bytes.readUInt16LE(at + 4) }
  }

  #stateAt(position: number): number {
    const { bytes, at } = this.#placeOf(position)
    return bytes.readUInt8(at)
  }

  #setStateAt(position: number, state: number): void {
    const { bytes, at } = this.#placeOf(position)
    bytes.writeUInt8(state, at)
  }

  #placeOf(position: number): { bytes: Buffer; at: number } {
    const place = position * WORD
    const chunk = this.#chunks[Math.floor(place / CHUNK_BYTES)]
    if (chunk === undefined) throw new RangeError(`no entry has the position ${position}`)
    return { bytes: chunk.bytes, at: place % CHUNK_BYTES }
  }
}

const recordBytes = (keyLength: number, valueLength: number): number =>
  Math.ceil((HEAD_BYTES + keyLength + valueLength) / WORD) * WORD

/** FNV-1a, mixed at the end. */
function hashOf(bytes: Buffer, start: number, end: number): number {
  let hash = 0x811c9dc5 ^ SEED
  for (let at = start; at < end; at++) hash = Math.imul(hash ^ bytes.readUInt8(at), 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 16), 0x7feb352d)
  hash = Math.imul(hash ^ (hash >>> 15), 0x846ca68b)
  return (hash ^ (hash >>> 16)) >>> 0
}
