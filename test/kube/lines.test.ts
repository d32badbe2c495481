import { array, assert, constantFrom, nat, property, string } from 'fast-check'
import { expect, it } from 'vitest'
import { LineCutter } from '../../kube/lines.ts'

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
  const text = string({ unit: 'binary' }).map((line) => line.replaceAll('\n', ' '))
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
