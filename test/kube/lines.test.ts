import { array, assert, constantFrom, nat, property } from 'fast-check'
import { expect, it } from 'vitest'
import { LineCutter } from '../../kube/watch.ts'

const cut = (bytes: Buffer, sizes: number[]): string[] => {
  const cutter = new LineCutter()
  const lines: string[] = []
  for (let start = 0, turn = 0; start < bytes.length; turn++) {
    const end = start + 1 + (sizes[turn % sizes.length] ?? 0)
    lines.push(...cutter.push(bytes.subarray(start, end)))
    start = end
  }
  return lines
}

it('gives the same lines wherever the chunks end, also inside a character', () => {
  // fast-check's own unit of all code points takes seconds to set up.
  const codePoint = nat({ max: 0x10ffff }).filter((code) => code !== 10 && (code < 0xd800 || code > 0xdfff))
  const text = array(codePoint).map((codes) => String.fromCodePoint(...codes))
  const line = constantFrom('', 'ä€𝄞', 'x'.repeat(100)).chain((more) => text.map((random) => random + more))
  assert(
    property(array(line), array(nat({ max: 7 }), { minLength: 1 }), (lines, sizes) => {
      expect(cut(Buffer.from(lines.map((text) => `${text}\n`).join('')), sizes)).toEqual(lines)
    }),
  )
})

it('keeps a line that has not ended', () => {
  const cutter = new LineCutter()
  expect(cutter.push(Buffer.from('one\ntw'))).toEqual(['one'])
  expect(cutter.pendingBytes).toBe(2)
  expect(cutter.push(Buffer.from('o\n'))).toEqual(['two'])
  expect(cutter.pendingBytes).toBe(0)
})
