/** A set of texts by 64 bits of hash, numbered as they came. */
export class Visited {
  #size = 0
  #mask: number
  #high: Uint32Array
  #low: Uint32Array
  #number: Int32Array

  constructor(bits = 16) {
    this.#mask = 2 ** bits - 1
    this.#high = new Uint32Array(2 ** bits)
    this.#low = new Uint32Array(2 ** bits)
    this.#number = new Int32Array(2 ** bits).fill(-1)
  }

  get size(): number {
    return this.#size
  }

  /** The text's number; equal to the size before if it is new. */
  add(text: string): number {
    let high = 0x811c9dc5
    let low = 0x9747b28c
    for (let index = 0; index < text.length; index++) {
      const code = text.charCodeAt(index)
      high = Math.imul(high ^ code, 0x01000193)
      low = Math.imul(low ^ code, 0x5bd1e995)
      low ^= low >>> 15
    }
    return this.#put(mixed(high), mixed(low ^ Math.imul(high, 0x85ebca6b)))
  }

  #put(high: number, low: number): number {
    let place = low & this.#mask
    while (this.#number[place] !== -1) {
      if (this.#high[place] === high && this.#low[place] === low) return this.#number[place]!
      place = (place + 1) & this.#mask
    }
    this.#high[place] = high
    this.#low[place] = low
    this.#number[place] = this.#size++
    if (this.#size * 2 > this.#mask) this.#grow()
    return this.#size - 1
  }

  #grow(): void {
    const larger = new Visited(Math.log2((this.#mask + 1) * 2))
    for (let place = 0; place <= this.#mask; place++) {
      if (this.#number[place] === -1) continue
      let free = this.#low[place]! & larger.#mask
      while (larger.#number[free] !== -1) free = (free + 1) & larger.#mask
      larger.#high[free] = this.#high[place]!
      larger.#low[free] = this.#low[place]!
      larger.#number[free] = this.#number[place]!
    }
    this.#mask = larger.#mask
    this.#high = larger.#high
    this.#low = larger.#low
    this.#number = larger.#number
  }
}

function mixed(hash: number): number {
  let bits = hash
  bits = Math.imul(bits ^ (bits >>> 16), 0x7feb352d)
  bits = Math.imul(bits ^ (bits >>> 15), 0x846ca68b)
  return (bits ^ (bits >>> 16)) >>> 0
}

/** A list of 32-bit numbers that grows. */
export class Numbers {
  #values = new Int32Array(1024)
  length = 0

  push(value: number): void {
    if (this.length === this.#values.length) {
      const larger = new Int32Array(this.#values.length * 2)
      larger.set(this.#values)
      this.#values = larger
    }
    this.#values[this.length++] = value
  }

  at(index: number): number {
    return this.#values[index]!
  }
}
