import { describe, expect, it } from 'vitest'
import type { BridgeStatus, ResourceStatus } from '#bridge'
import { Breaker } from '../../cli/process/breaker.ts'

const request = { method: 'GET', host: 'east:6443', path: '/api', code: '<error>', isUnanswered: true }

function watched() {
  let at = 0
  const reasons: string[] = []
  const breaker = new Breaker(
    ({ message }) => void reasons.push(message),
    () => at,
  )
  return { breaker, reasons, after: (seconds: number) => (at += seconds * 1000) }
}

const resource = (of: Partial<ResourceStatus>): BridgeStatus => ({
  resources: [
    {
      resource: 'pods.v1',
      namespace: undefined,
      phase: 'watching',
      since: new Date(0),
      synced: true,
      covers: [],
      resourceVersion: '1',
      latestResourceVersion: '1',
      heldBackSince: undefined,
      lastEventAt: undefined,
      open: true,
      unansweredSince: undefined,
      heardAt: new Date(0),
      failingSince: undefined,
      unconfirmed: 0,
      failure: undefined,
      ...of,
    },
  ],
  orphans: [],
  paused: [],
  refused: [],
})

describe('a breaker of a cluster', () => {
  it('opens at the third request within 30 s that is not answered', () => {
    const { breaker, reasons, after } = watched()
    for (const pause of [0, 14, 15]) {
      expect(reasons).toEqual([])
      after(pause)
      breaker.requested(request)
    }
    expect(reasons).toEqual(['3 requests failed within 30 s: GET /api was not answered'])
  })

  it('stays closed for failures that are further apart, and for answers of any kind but 401', () => {
    const { breaker, reasons, after } = watched()
    for (const pause of [0, 15, 16, 15, 16]) {
      after(pause)
      breaker.requested(request)
      for (const code of ['200', '403', '500', '503']) breaker.requested({ ...request, code, isUnanswered: false })
      // Given up by this process.
      breaker.requested({ ...request, isUnanswered: false })
    }
    expect(reasons).toEqual([])
  })

  it('opens when the credential is refused', () => {
    const { breaker, reasons } = watched()
    for (let count = 0; count < 3; count++) breaker.requested({ ...request, code: '401', isUnanswered: false })
    expect(reasons).toEqual([expect.stringContaining('does not accept the credential')])
  })

  it.each<[string, boolean, Partial<ResourceStatus>]>([
    ['a silent watch opens it', true, {}],
    [
      'a watch that cannot be opened again opens it',
      true,
      { phase: 'waiting', failure: { kind: 'unreachable', message: '' } },
    ],
    ['a watch that waits for NATS does not', false, { heldBackSince: new Date(0) }],
    ['a list that takes long does not', false, { phase: 'listing' }],
    ['a missing permission does not', false, { failure: { kind: 'forbidden', message: '' } }],
  ])('%s', (_law, opens, of) => {
    const { breaker, reasons, after } = watched()
    after(74)
    breaker.watched(resource(of))
    expect(reasons).toEqual([])
    after(2)
    breaker.watched(resource(of))
    expect(reasons.length > 0).toBe(opens)
  })
})
