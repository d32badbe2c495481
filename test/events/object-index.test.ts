import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, it } from 'vitest'
import type { Selection } from '#events'
import { parseSelector, relatedSelection } from '#spec'
import { type IndexedCopy, ObjectIndex } from '../../streams/events/index-reader.ts'

const PREFIX = 'k8s._.v1.pods'
const TTL_MS = 3_600_000

const selection = (text: string): Selection => ({
  text,
  byFields: false,
  matcher: () => parseSelector(text),
})
const mine = selection('app=mine')

/** Applies what a stream would have on the subject of a pod. */
function filling(index: ObjectIndex) {
  let sequence = 0
  return (name: string, version: number, copy: Partial<IndexedCopy> = {}, now = 0): boolean => {
    const { owner = '_', verb = 'modified', labels = { app: 'mine' } } = copy
    const until = verb === 'modified' ? undefined : now + TTL_MS
    const whole = { owner, verb, labels, until, resourceVersion: String(version), sequence: ++sequence }
    return index.apply(`${PREFIX}.ns.${owner}.${name}`, whole, undefined, now)
  }
}

const found = (index: ObjectIndex, one = mine) => index.locate(one).map(({ subject, sequence }) => [subject, sequence])

it('an object is found at its copy that counts, wherever others are stored, and in the order of the stream', () => {
  const index = new ObjectIndex(PREFIX)
  const put = filling(index)
  put('p', 5)
  put('q', 6)
  put('p', 7, { owner: 'ats~a' })
  put('q', 4, { owner: 'ats~a' })
  expect(found(index)).toEqual([
    [`${PREFIX}.ns._.q`, 2],
    [`${PREFIX}.ns.ats~a.p`, 3],
  ])
  put('p', 8, { owner: 'ats~a', verb: 'moved' })
  put('q', 9, { labels: {} })
  expect(found(index)).toEqual([])
})

it('a copy in an older version does not bring back what was deleted, until EVENTS has forgotten the deletion', () => {
  const index = new ObjectIndex(PREFIX)
  const put = filling(index)
  put('p', 7, { verb: 'deleted' })
  put('p', 5, { owner: 'ats~a' }, TTL_MS - 1)
  expect(found(index)).toEqual([])
  put('p', 5, { owner: 'ats~a' }, TTL_MS + 1)
  expect(found(index)).toEqual([[`${PREFIX}.ns.ats~a.p`, 3]])
})

it('fields count where the object is known, and whatever has the labels may be wanted where it is not', () => {
  const index = new ObjectIndex(PREFIX)
  const running: Selection = {
    text: 'running',
    byFields: true,
    matcher: () => (labels, object) => labels['app'] === 'mine' && object?.['phase'] !== 'Pending',
  }
  index.select(running)
  const apply = (name: string, sequence: number, phase: string | undefined) => {
    const copy = { owner: '_', verb: 'modified', labels: { app: 'mine' }, until: undefined } as const
    const object = phase === undefined ? undefined : { apiVersion: 'v1', kind: 'Pod', metadata: { name }, phase }
    return index.apply(`${PREFIX}.ns._.${name}`, { ...copy, sequence, resourceVersion: '1' }, object, 0)
  }
  expect([apply('p', 1, 'Pending'), apply('q', 2, 'Running'), apply('r', 3, undefined)]).toEqual([false, true, true])
  expect(found(index, running).map(([, sequence]) => sequence)).toEqual([2, 3])
})

const PODS = { group: '', version: 'v1', resource: 'pods', kind: 'Pod', within: 'Namespace' } as const
const onNode = relatedSelection({ ...PODS, selector: 'app=mine', naming: 'spec.nodeName' })

it('an object is found by each name in its field, by no name that it has lost, and by any name while its fields are not known', () => {
  const index = new ObjectIndex(PREFIX)
  const apply = (name: string, sequence: number, nodeName: string | undefined, isKnown = true, app = 'mine') => {
    const copy = { owner: '_', verb: 'modified', labels: { app }, until: undefined } as const
    const object = { apiVersion: 'v1', kind: 'Pod', metadata: { name }, spec: { nodeName } }
    index.apply(
      `${PREFIX}.ns._.${name}`,
      { ...copy, sequence, resourceVersion: `${sequence}` },
      isKnown ? object : undefined,
      0,
    )
  }
  const on = (node: string | undefined) => index.locate(onNode, node).map(({ sequence }) => sequence)
  apply('old', 1, 'n1')
  expect(on('n2'), 'applied before the selection').toEqual([1])
  for (const [at, node] of ['n1', 'n2', 'n1', undefined].entries()) apply(`p${at}`, at + 2, node)
  apply('old', 6, 'n1')
  apply('reference', 7, 'n2', false)
  apply('other', 8, 'n1', true, 'other')
  expect([on('n1'), on('n2'), on('n3'), on(undefined)]).toEqual([[2, 4, 6, 7], [3, 7], [7], [2, 3, 4, 5, 6, 7]])
  apply('p0', 9, 'n2')
  apply('p2', 10, 'n1', true, 'other')
  expect([on('n1'), on('n2')]).toEqual([
    [6, 7],
    [3, 7, 9],
  ])
})

it('100,000 objects take no more of the heap than the index says, 0.5 KiB each; and deletions no more than 16 MiB', () => {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as () => void
  const heap = () => {
    gc()
    return process.memoryUsage().heapUsed
  }
  const before = heap()
  const index = new ObjectIndex(PREFIX)
  const put = filling(index)
  index.select(mine)
  const name = (at: number) => `web-7d4b9c6f5d-${at.toString(36).padStart(5, '0')}`
  for (let at = 0; at < 100_000; at++)
    put(name(at), 1_000_000 + at, {
      labels: {
        app: at % 10 === 0 ? 'mine' : 'other',
        'app.kubernetes.io/name': 'web',
        'app.kubernetes.io/instance': `shop-${at % 50}`,
        'pod-template-hash': '7d4b9c6f5d',
      },
    })
  const filled = heap() - before
  expect(index.size).toBe(100_000)
  expect(filled).toBeLessThan(index.bytes)
  expect(index.bytes / 100_000).toBeLessThan(512)
  for (let at = 0; at < 100_000; at++) put(name(at), 2_000_000 + at, { verb: 'deleted', labels: {} })
  expect([index.size, found(index).length]).toEqual([0, 0])
  expect(index.bytes).toBeLessThan(9 * 2 ** 20)
  expect(heap() - before).toBeLessThan(16 * 2 ** 20)
})
