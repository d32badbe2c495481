import { expect, it } from 'vitest'
import { recording, SCHEMES } from './recording.ts'

const LINES = [
  { text: '$ npm run demo', atMs: 0 },
  { text: 'kube-apiserver \u001b[31m<up> & ready', atMs: 60_000 },
  { text: 'DONE: default/example-at', atMs: 60_200 },
]
const texts = (svg: string) => [...svg.matchAll(/<text [^>]*>([^<]*)<\/text>/g)].map(([, text]) => text)
const delays = (svg: string) => [...svg.matchAll(/animation-delay:([\d.]+)s/g)].map(([, seconds]) => Number(seconds))

it.each(Object.entries(SCHEMES))(
  'a recording shows each line in its order, with long pauses shortened (%s)',
  (_name, scheme) => {
    const svg = recording(LINES, scheme)
    expect(texts(svg)).toEqual(['$ npm run demo', 'kube-apiserver [31m&lt;up> &amp; ready', 'DONE: default/example-at'])
    expect(delays(svg)).toEqual([0, 1.2, 1.4])
  },
)
