import { expect, it } from 'vitest'
import { recording, SCHEMES } from './recording.ts'

const LINES = [
  { text: '$ kubectl get websites', atMs: 0 },
  { text: 'hello \u001b[31m<up> & ready', atMs: 1200 },
  { text: 'hello   3   Serving', atMs: 1400 },
]
const texts = (svg: string) => [...svg.matchAll(/<text [^>]*>([^<]*)<\/text>/g)].map(([, text]) => text)
const delays = (svg: string) => [...svg.matchAll(/animation-delay:([\d.]+)s/g)].map(([, seconds]) => Number(seconds))

it.each(Object.entries(SCHEMES))('a recording shows each line in its time (%s)', (_name, scheme) => {
  const svg = recording(LINES, scheme)
  expect(texts(svg)).toEqual(['$ kubectl get websites', 'hello [31m&lt;up> &amp; ready', 'hello   3   Serving'])
  expect(delays(svg)).toEqual([0, 1.2, 1.4])
})

it('a line that is longer than the terminal takes a second row', () => {
  const [first = '', second, ...others] = texts(recording([{ text: 'x'.repeat(400), atMs: 0 }], SCHEMES['light']!))
  expect([second, others]).toEqual([first, []])
  expect(first.length).toBeLessThan(120)
})
