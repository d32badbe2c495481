import { describe, expect, it } from 'vitest'
import { BuildShares, timeShare } from '../../packages/lab/build.ts'
import { barOf, roughly, secondsLeft } from '../../packages/lab/progress.ts'

describe('the time left', () => {
  it('is what was measured elsewhere until something is done', () => {
    for (const elapsed of [0, 100, 500]) expect(secondsLeft({ elapsed, expected: 300, share: 0 })).toBe(300)
  })

  it.each([0.25, 0.5, 1, 2, 4])('is right on a machine that takes %d times as long, once a fifth is done', (times) => {
    for (const share of [0.2, 0.5, 0.9])
      expect(secondsLeft({ elapsed: 300 * times * share, expected: 300, share })).toBeCloseTo(300 * times * (1 - share))
  })

  it('is rough', () => {
    expect([0.2, 5, 59, 61, 118, 130, 600].map(roughly)).toEqual([
      '1 s',
      '5 s',
      '59 s',
      '1 min',
      '2 min',
      '2 min 10 s',
      '10 min',
    ])
  })

  it('stands behind a bar, until the end', () => {
    expect(barOf({ elapsed: 100, expected: 100, share: 0.5 })).toBe('▰▰▰▰▰▰▰▰▰▰▱▱▱▱▱▱▱▱▱▱ 50 %, about 1 min 40 s left')
    expect(barOf({ elapsed: 200, expected: 100, share: 1 })).toBe(`${'▰'.repeat(20)} 100 %`)
  })
})

describe('the share of a build', () => {
  const names = ['loopback', 'host-local', 'runc'] as const

  it('grows with packages of others that are compiled, and is whole when all programs are there', () => {
    const shares: number[] = []
    const all = new BuildShares(names, (share) => shares.push(share))
    const [cni, runc] = [all.of(['loopback', 'host-local']), all.of(['runc'])]
    for (const line of ['internal/cpu', 'net/http', 'go: downloading example.com/x v1.0.0', '# example.com/x'])
      cni.line(line)
    expect(shares).toEqual([])
    for (const line of ['github.com/a/b', 'golang.org/x/sys/unix', 'sigs.k8s.io/c/v2']) cni.line(line)
    expect(shares).toHaveLength(3)
    cni.done()
    runc.line('github.com/opencontainers/runc')
    runc.done()
    expect(shares).toEqual(shares.toSorted((one, other) => one - other))
    expect(shares.at(-1)).toBe(1)
  })

  it('follows the time that was measured, from nothing to all', () => {
    expect([0, 0.02, 0.05, 0.5, 0.88, 1].map((share) => Number(timeShare(share).toFixed(3)))).toEqual([
      0, 0.1, 0.135, 0.595, 0.94, 1,
    ])
  })

  it('is no more than whole where more is compiled than was expected', () => {
    let reached = 0
    const build = new BuildShares(['loopback'], (share) => void (reached = share)).of(['loopback'])
    for (let index = 0; index < 100; index++) build.line(`example.com/p${index}`)
    expect(reached).toBeLessThan(1)
  })
})
