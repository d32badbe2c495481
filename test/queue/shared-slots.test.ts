import { describe, expect, it } from 'vitest'
import { SharedSlots } from '#queue'
import { seededRandom } from '../support/random.ts'

type Share = ReturnType<SharedSlots['join']>

const sharedBy = (clusters: number, total: number): { slots: SharedSlots; shares: Share[] } => {
  const slots = new SharedSlots(total)
  slots.clusters = clusters
  return { slots, shares: Array.from({ length: clusters }, () => slots.join()) }
}

describe('the slots that the clusters of a process share', () => {
  it('are all for one that needs them while no other waits, but for those reserved for the others', () => {
    const { shares } = sharedBy(2, 1000)
    expect(shares[0]?.limit).toBe(750)
    expect(sharedBy(1, 1000).shares[0]?.limit).toBe(1000)
  })

  it('are never more than half for one while another waits', () => {
    for (const clusters of [2, 3, 10]) {
      const { shares } = sharedBy(clusters, 1000)
      shares[1]?.note(1, true)
      expect(shares[0]?.limit).toBeLessThanOrEqual(500)
    }
  })

  it('have room for each cluster, however many the others hold and for however long', () => {
    const { shares } = sharedBy(4, 1000)
    const [hung, alsoHung, ...others] = shares
    for (const one of [hung, alsoHung]) one?.note(one.limit, true)
    for (const other of others) expect(other.limit).toBeGreaterThanOrEqual(125)
  })

  it('are not exceeded, and reach each that waits, in any order of takes and releases', () => {
    const random = seededRandom('shared slots')
    const clusters = 2 + Math.floor(random() * 4)
    const total = 20 * clusters
    const { shares } = sharedBy(clusters, total)
    const held = shares.map(() => 0)
    for (let step = 0; step < 2000; step++) {
      const index = Math.floor(random() * clusters)
      const share = shares[index]
      const has = held[index] ?? 0
      if (share === undefined) continue
      const wanted = Math.floor(random() * total)
      const now = wanted > has ? Math.max(has, Math.min(wanted, share.limit)) : wanted
      held[index] = now
      share.note(now, now < wanted)
      expect(held.reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(total)
      expect(share.limit).toBeGreaterThanOrEqual(total / (2 * clusters))
    }
  })

  it('wake a cluster that waits when another one holds fewer, or ends', () => {
    const { shares } = sharedBy(2, 100)
    const [one, other] = shares
    let woken = 0
    other?.onMore(() => woken++)
    one?.note(75, false)
    other?.note(25, true)
    one?.note(74, false)
    expect(woken).toBe(1)
    one?.[Symbol.dispose]()
    expect(woken).toBe(2)
    expect(other?.limit).toBe(75)
  })
})
