import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }

/** Rooms that only tests of functions use. */
const NOT_RUN = ['testing']

it('the image has every room that the command can load', () => {
  const dockerfile = readFileSync('deploy/images/fairlead/Dockerfile', 'utf8')
  const copied = [...dockerfile.matchAll(/^COPY ([\w-]+) [\w-]+$/gm)].map(([, folder]) => folder)
  const rooms = Object.values(manifest.imports).map((path) => path.split('/')[1])
  const missing = rooms.filter((room = '') => !copied.includes(room) && !NOT_RUN.includes(room))
  expect(missing).toEqual([])
})
