import { describe, expect, it } from 'vitest'
import { ApiConnectionError, ApiError } from '#kube'
import { Breaker } from '../../cli/process/breaker.ts'

const SILENT = new ApiConnectionError('GET /: no whole answer', { server: 'east:6443', wasSent: true })
const refusal = (code: number) => new ApiError('GET /', { apiVersion: 'v1', kind: 'Status', code })

/** The end of each of these probes: `left` for one whose failure leaves the cluster. */
async function judged(breaker: Breaker, ...errors: (Error | undefined)[]): Promise<string[]> {
  const ends: string[] = []
  for (const error of errors) {
    const probe = async () => {
      if (error !== undefined) throw error
      return 'uid'
    }
    ends.push(await breaker.judge(probe).then(String, () => 'left'))
  }
  return ends
}

describe('a breaker of a cluster', () => {
  it.each([
    ['is not answered', SILENT],
    ['has no connection', new ApiConnectionError('refused', { server: 'east:6443', wasSent: false })],
    ['is answered that the server cannot serve', refusal(503)],
    ['is answered that the credential is not accepted', refusal(401)],
  ])('opens at the third probe in a row that %s', async (_what, error) => {
    expect(await judged(new Breaker(), error, error, undefined, error, error, error)).toEqual([
      'undefined',
      'undefined',
      'uid',
      'undefined',
      'undefined',
      'left',
    ])
  })

  it.each([403, 404, 429])('stays closed for a probe that is refused with %d', async (code) => {
    expect(await judged(new Breaker(), ...Array.from({ length: 9 }, () => refusal(code)))).not.toContain('left')
  })

  it('stays closed while any other request is answered, however many are not', async () => {
    const breaker = new Breaker()
    for (let round = 0; round < 20; round++) {
      for (let count = 0; count < 100; count++) breaker.requested({ code: '<error>' })
      breaker.requested({ code: ['200', '403', '404', '409', '422', '429'][round % 6] ?? '200' })
      expect(await judged(breaker, SILENT)).toEqual(['undefined'])
    }
  })

  it('opens although requests are answered by errors of the server, or by a refused credential', async () => {
    const breaker = new Breaker()
    const ends: string[] = []
    for (const code of ['500', '401', '504']) {
      breaker.requested({ code })
      ends.push(...(await judged(breaker, SILENT)))
    }
    expect(ends.at(-1)).toBe('left')
  })

  it('probes on a connection of its own after a failure, because requests that hang may hold all others', async () => {
    const breaker = new Breaker()
    const alone: boolean[] = []
    const probe = async (how: { alone: boolean }) => {
      alone.push(how.alone)
      throw SILENT
    }
    await breaker.judge(probe)
    await breaker.judge(probe)
    expect(alone).toEqual([false, true])
  })
})
