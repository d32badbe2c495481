/**
 * The part of protobuf (proto3) that etcd's API needs. Values are plain JSON except `bytes`. An `id` is a uint64 as a
 * decimal string, because it does not fit into a number; an `int` is any other integer, exact up to 2^53.
 */
type Type = 'id' | 'int' | 'bool' | 'string' | 'bytes' | Message<Fields>

export interface List<T extends Type> {
  readonly each: T
}

export type Fields = Readonly<Record<string, readonly [number: number, type: Type | List<Type>]>>

export interface Message<F extends Fields> {
  readonly fields: F
}

type ValueOf<T> = T extends 'id' | 'string'
  ? string
  : T extends 'int'
    ? number
    : T extends 'bool'
      ? boolean
      : T extends 'bytes'
        ? Buffer
        : T extends List<infer Item>
          ? ValueOf<Item>[]
          : T extends Message<infer F>
            ? { -readonly [Name in keyof F]: ValueOf<F[Name][1]> }
            : never

/** The decoded form of a message: each field has a value. */
export type Decoded<M> = M extends Message<infer F> ? ValueOf<Message<F>> : never

/** The input for encoding a message: a field that is left out has its default. */
export type Encodable<M> =
  M extends Message<infer F>
    ? { [Name in keyof F]?: F[Name][1] extends Message<infer Inner> ? Encodable<Message<Inner>> : ValueOf<F[Name][1]> }
    : never

export const message = <const F extends Fields>(fields: F): Message<F> => ({ fields })
export const list = <const T extends Type>(each: T): List<T> => ({ each })

const VARINT = 0
const FIXED64 = 1
const BYTES = 2
const FIXED32 = 5

export function encode<M extends Message<Fields>>({ fields }: M, values: Encodable<M>): Buffer {
  const parts = Object.entries(values).flatMap(([name, value]) => {
    const field = fields[name]
    if (field === undefined || value === undefined) return []
    const [number, type] = field
    const items = isList(type) ? (value as unknown[]) : [value]
    const each = isList(type) ? type.each : type
    return items.flatMap((item) => encodeField(number, each, item))
  })
  return Buffer.concat(parts)
}

function encodeField(number: number, type: Type, value: unknown): Buffer[] {
  if (type === 'id' || type === 'int' || type === 'bool')
    return [varint(number * 8 + VARINT), varint(BigInt(value as string | number | boolean))]
  const content = contentOf(type, value)
  return [varint(number * 8 + BYTES), varint(content.length), content]
}

function contentOf(type: 'string' | 'bytes' | Message<Fields>, value: unknown): Buffer {
  if (type === 'string') return Buffer.from(value as string)
  return type === 'bytes' ? (value as Buffer) : encode(type, value as object)
}

function varint(value: number | bigint): Buffer {
  const bytes: number[] = []
  let rest = BigInt.asUintN(64, BigInt(value))
  for (; rest > 0x7fn; rest >>= 7n) bytes.push(Number(rest & 0x7fn) | 0x80)
  return Buffer.from([...bytes, Number(rest)])
}

/** Decodes a message. Throws if the bytes are cut off. Fields that are not declared are skipped. */
export function decode<M extends Message<Fields>>({ fields }: M, bytes: Buffer): Decoded<M> {
  const byNumber = new Map(Object.entries(fields).map(([name, [number, type]]) => [number, { name, type }]))
  const values: Record<string, unknown> = {}
  for (const [name, [, type]] of Object.entries(fields)) values[name] = isList(type) ? [] : defaultOf(type)
  const reader = new Reader(bytes)
  while (!reader.isAtEnd) {
    const key = Number(reader.varint())
    const raw = reader.value(key % 8)
    const field = byNumber.get(Math.floor(key / 8))
    if (field === undefined) continue
    const { name, type } = field
    if (isList(type)) (values[name] as unknown[]).push(...itemsOf(type.each, raw))
    else values[name] = valueOf(type, raw)
  }
  return values as Decoded<M>
}

const isList = (type: Type | List<Type>): type is List<Type> => typeof type === 'object' && 'each' in type

function defaultOf(type: Type): unknown {
  if (typeof type === 'object') return decode(type, Buffer.alloc(0))
  return { id: '0', int: 0, bool: false, string: '', bytes: Buffer.alloc(0) }[type]
}

/** Returns the items of a list. Its numbers may be packed in one field. */
function itemsOf(type: Type, raw: bigint | Buffer): unknown[] {
  const isNumber = type === 'id' || type === 'int' || type === 'bool'
  if (typeof raw === 'bigint' || !isNumber) return [valueOf(type, raw)]
  const reader = new Reader(raw)
  const items: unknown[] = []
  while (!reader.isAtEnd) items.push(valueOf(type, reader.varint()))
  return items
}

function valueOf(type: Type, raw: bigint | Buffer): unknown {
  if (typeof raw === 'bigint') {
    if (type === 'id') return String(raw)
    return type === 'bool' ? raw !== 0n : Number(BigInt.asIntN(64, raw))
  }
  if (type === 'string') return raw.toString('utf8')
  return typeof type === 'object' ? decode(type, raw) : raw
}

class Reader {
  readonly #bytes: Buffer
  #at = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#bytes.length
  }

  varint(): bigint {
    for (let value = 0n, shift = 0n; ; shift += 7n) {
      const byte = this.#take(1)[0] ?? 0
      value |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return BigInt.asUintN(64, value)
      if (shift > 63n) throw new Error('a number in a protobuf message has more than 64 bits')
    }
  }

  value(wire: number): bigint | Buffer {
    if (wire === VARINT) return this.varint()
    if (wire === BYTES) return this.#take(Number(this.varint()))
    if (wire === FIXED64) return this.#take(8)
    if (wire === FIXED32) return this.#take(4)
    throw new Error(`a protobuf message has a field of wire type ${wire}, which is not known`)
  }

  #take(length: number): Buffer {
    const end = this.#at + length
    if (end > this.#bytes.length) throw new Error('a protobuf message is cut off')
    const taken = this.#bytes.subarray(this.#at, end)
    this.#at = end
    return taken
  }
}
