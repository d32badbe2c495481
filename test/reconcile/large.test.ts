import { describe, expect, it } from 'vitest'
import { createdFor, widget } from '../dispatch/objects.ts'
import { sees, stepsOf, stored, succeeds } from './driver.ts'

const COUNT = 400
/** Reads of one object, however many others there are. */
const MOST_READS = 60

const configMap = (index: number) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name: `c${index}` },
  data: { key: `value ${index}` },
})
const apply = Array.from({ length: COUNT }, (_, index) => configMap(index))

/** Objects that count how often their names are read. */
function counted<T extends { metadata: { name: string } }>(objects: readonly T[]) {
  const reads = objects.map(() => 0)
  const counting = objects.map((object, index) => {
    const { name, ...others } = object.metadata
    const metadata = Object.defineProperty(others, 'name', { enumerable: true, get: () => (reads[index]!++, name) })
    return { ...object, metadata }
  })
  return { counting, most: () => Math.max(...reads) }
}

describe('a run of many objects reads each a few times only', () => {
  it('when it writes them', () => {
    const written = counted(apply.map((object) => stored(createdFor(widget(), 'widget', object))))
    stepsOf((ask) => {
      if (ask.do === 'call') return { did: 'call', returned: { apply } }
      if (ask.do !== 'write') return succeeds(ask)
      return { did: 'write', results: written.counting.map((object) => ({ object, isOld: false })) }
    })
    expect(written.most()).toBeLessThan(MOST_READS)
  })

  it('when all but one of them have to go', () => {
    const there = counted(apply.map((object) => stored(createdFor(widget(), 'widget', object))))
    stepsOf((ask) => {
      if (ask.do === 'observe') return sees(widget(), ...there.counting)
      if (ask.do === 'call') return { did: 'call', returned: { apply: apply.slice(0, 1) } }
      return succeeds(ask)
    })
    expect(there.most()).toBeLessThan(MOST_READS)
  })
})
