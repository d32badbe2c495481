import { describe, expect, it } from 'vitest'
import { type ResourceStatus, troubles } from '#bridge'

const now = new Date('2030-01-01T00:10:00Z')
const ago = (seconds: number) => new Date(now.getTime() - seconds * 1000)
const status = (more: Partial<ResourceStatus>): ResourceStatus => ({
  resource: 'pods.v1',
  namespace: undefined,
  phase: 'watching',
  since: ago(600),
  synced: true,
  covers: [],
  resourceVersion: '7',
  latestResourceVersion: '7',
  heldBackSince: undefined,
  lastEventAt: ago(300),
  open: true,
  unansweredSince: undefined,
  heardAt: ago(62),
  failingSince: undefined,
  unconfirmed: 0,
  failure: undefined,
  ...more,
})

describe('a bridge', () => {
  it.each<[string, Partial<ResourceStatus>]>([
    ['whose watch is quiet: no more than a bookmark a minute', {}],
    ['whose watch is asked for anew after silence', { open: false, heardAt: ago(80), unansweredSince: ago(5) }],
    ['that lists for long', { phase: 'listing', open: false, heardAt: ago(300) }],
    ['whose changes wait for a moment', { heldBackSince: ago(5), unconfirmed: 3 }],
    ['whose watch broke a moment ago', { failingSince: ago(5), failure: { kind: 'unreachable', message: '' } }],
    ['that is asked for what does not exist', { synced: false, failure: { kind: 'absent', message: '' } }],
    ['that is asked for what it may not see', { synced: false, failure: { kind: 'forbidden', message: '' } }],
  ])('%s does its work', (_name, more) => {
    expect(troubles({ resources: [status(more)], refused: [], orphans: [], paused: [] }, now)).toEqual([])
  })

  it('that has not begun does not', () => {
    expect(troubles({ resources: [], refused: [], orphans: [], paused: [] }, now)).toEqual([
      'the bridge has not begun to watch',
    ])
  })

  it.each<[string, Partial<ResourceStatus>, string]>([
    ['that has not listed everything', { synced: false }, 'pods.v1: not synced yet'],
    [
      'that NATS has not answered for long',
      { heldBackSince: ago(40), namespace: 'one' },
      'pods.v1 in one: a change is not confirmed by NATS since 40 s',
    ],
    ['whose watch is stuck', { failingSince: ago(31) }, 'pods.v1: the watch fails since 31 s'],
    ['whose API server hangs', { heardAt: ago(91) }, 'pods.v1: the API server has sent nothing for 91 s'],
    [
      'whose API server does not answer',
      { open: false, unansweredSince: ago(31) },
      'pods.v1: the API server has not answered the request for the watch for 31 s',
    ],
  ])('%s does not, and says so', (_name, more, trouble) => {
    expect(troubles({ resources: [status(more)], refused: [], orphans: [], paused: [] }, now)).toEqual([trouble])
  })
})
