import { assert, bigInt, boolean, integer, property, record, string } from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decode, encode, list, message } from '../../../../functions/etcd/client/protobuf.ts'

const Inner = message({ text: [1, 'string'], on: [15, 'bool'] })
const Outer = message({
  id: [1, 'id'],
  count: [2, 'int'],
  inner: [3, Inner],
  names: [4, list('string')],
  inners: [2047, list(Inner)],
  numbers: [6, list('int')],
})

describe('a protobuf message', () => {
  it('is decoded as it was encoded', () => {
    const inner = record({ text: string({ unit: 'grapheme' }), on: boolean() })
    const id = bigInt({ min: 0n, max: 2n ** 64n - 1n }).map(String)
    assert(
      property(id, integer(), inner, string(), (id, count, inner, name) => {
        const value = { id, count, inner, names: [name, 'b'], inners: [inner, inner], numbers: [count, 1] }
        expect(decode(Outer, encode(Outer, value))).toEqual(value)
      }),
    )
  })

  it('has a default for each field that was left out', () => {
    expect(decode(Outer, encode(Outer, {}))).toEqual({
      id: '0',
      count: 0,
      inner: { text: '', on: false },
      names: [],
      inners: [],
      numbers: [],
    })
  })

  it('is read past fields that are not known, and with packed numbers', () => {
    const Newer = message({ later: [9, 'string'], text: [1, 'string'] })
    expect(decode(Inner, encode(Newer, { later: 'x', text: 'y' }))).toEqual({ text: 'y', on: false })
    const packed = Buffer.from([0x32, 0x03, 0x01, 0x80, 0x01])
    expect(decode(Outer, packed).numbers).toEqual([1, 128])
    // Fixed numbers of 64 and of 32 bits, fields 5 and 7.
    expect(decode(Inner, Buffer.from([0x29, 0, 0, 0, 0, 0, 0, 0, 0, 0x3d, 0, 0, 0, 0]))).toEqual({
      text: '',
      on: false,
    })
  })

  it.each([
    ['a text', [0x0a, 0x05, 0x61]],
    ['a number', [0x08]],
  ])('that is cut off in %s is refused', (_, bytes) => {
    expect(() => decode(Outer, Buffer.from(bytes))).toThrow('cut off')
  })
})
