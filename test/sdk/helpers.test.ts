import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { RunInput } from '#contracts'
import {
  Deployment,
  deploymentName,
  type Reconciler,
  reconciler,
  resource,
  rolloutOf,
  StatefulSet,
  serviceName,
  shortName,
  toInvoke,
} from '#sdk'
import { silent } from '../support/silent.ts'

const dnsName = fc.stringMatching(/^[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?$/)

describe('names made from longer ones', () => {
  it('stay as they are within the limit, and are told apart beyond it', () => {
    expect(shortName('a'.repeat(63), 63)).toBe('a'.repeat(63))
    const one = shortName(`${'a'.repeat(100)}x`, 63)
    expect(one).toMatch(/^a{52}-[0-9a-f]{10}$/)
    expect(one).not.toBe(shortName(`${'a'.repeat(100)}y`, 63))
  })

  it('of Deployments leave room for those of their ReplicaSets', () => {
    expect(deploymentName('a'.repeat(253))).toHaveLength(253 - '-0123456789'.length)
    expect(deploymentName('a'.repeat(242))).toBe('a'.repeat(242))
  })

  it('of Services are DNS labels that begin with a letter, each its own', () => {
    expect(serviceName('web')).toBe('web')
    const names = fc.uniqueArray(dnsName, { minLength: 2, maxLength: 2 })
    fc.assert(
      fc.property(names, ([one = '', other = '']) => {
        expect(serviceName(one)).toMatch(/^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$/)
        expect(serviceName(one)).not.toBe(serviceName(other))
      }),
    )
  })
})

describe('a roll-out', () => {
  const deployment = (status: object, replicas = 2) => ({
    ...Deployment.of({ metadata: { name: 'a', generation: 3 }, spec: { replicas } as never }),
    status: { observedGeneration: 3, replicas: 2, updatedReplicas: 2, readyReplicas: 2, ...status },
  })

  it.each<[string, Parameters<typeof rolloutOf>[0], boolean]>([
    ['all are ready, and of the latest template', deployment({}), true],
    ['there is nothing', undefined, false],
    ['its controller has not seen it yet', deployment({ observedGeneration: 2 }), false],
    ['one is not ready', deployment({ readyReplicas: 1 }), false],
    ['one is of an older template', deployment({ updatedReplicas: 1 }), false],
    ['an old one is still there', deployment({ replicas: 3, readyReplicas: 3 }), false],
    ['none is wanted', deployment({ replicas: 0, updatedReplicas: 0, readyReplicas: 0 }, 0), true],
  ])('when %s: is complete: %s', (_, one, isComplete) => {
    expect(rolloutOf(one).isComplete).toBe(isComplete)
  })
})

describe('a roll-out of a StatefulSet', () => {
  const statefulSet = (status: object, partition?: number) => ({
    ...StatefulSet.of({
      metadata: { name: 'a', generation: 3 },
      spec: {
        replicas: 2,
        ...(partition !== undefined && { updateStrategy: { rollingUpdate: { partition } } }),
      } as never,
    }),
    status: { observedGeneration: 3, replicas: 2, updatedReplicas: 2, readyReplicas: 2, ...status },
  })

  it.each<[string, Parameters<typeof rolloutOf>[0], boolean]>([
    ['all are ready, and of the latest template', statefulSet({}), true],
    ['all are ready, one of an older template', statefulSet({ updatedReplicas: 1 }), false],
    ['all are ready, and the partition keeps one at the older template', statefulSet({ updatedReplicas: 1 }, 1), true],
    ['its controller has not seen it yet', statefulSet({ observedGeneration: 2 }), false],
    ['one is not ready', statefulSet({ readyReplicas: 1 }), false],
  ])('when %s: is complete: %s', (_, one, isComplete) => {
    expect(rolloutOf(one)).toMatchObject({ isComplete, isStuck: false })
  })
})

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({}),
  status: z.object({ drawn: z.string() }),
})
const given = { owned: {}, related: {}, attempt: 0, now: '2030-01-01T00:00:00Z', finalizing: false }
const shop = (meta: object = {}) => Shop.of({ metadata: { name: 'a', uid: 'u', ...meta }, spec: {} })
const run = (one: Reconciler, input: Partial<RunInput>) =>
  toInvoke(one)({ object: shop(), ...given, ...input }, { signal: new AbortController().signal, log: silent })

describe('a secret', () => {
  const drawer = (name: string) =>
    reconciler({ name: 'shop', for: Shop, reconcile: ({ secret }) => ({ status: { drawn: secret(name) } }) })
  const drawn = async (name: string, seed: string) => (await run(drawer(name), { seed })).status?.['drawn']

  it('is 32 letters and digits, the same in one run, others in another and for another name', async () => {
    const one = await drawn('password', 'seed')
    expect(one).toMatch(/^[A-Za-z0-9]{32}$/)
    expect(await drawn('password', 'seed')).toBe(one)
    expect(await drawn('password', 'other')).not.toBe(one)
    expect(await drawn('root', 'seed')).not.toBe(one)
  })

  it('cannot be drawn in a run without a seed', async () => {
    await expect(run(drawer('password'), {})).rejects.toThrow('no secret "password" can be drawn')
  })
})

describe('an object that is being deleted', () => {
  const going = shop({ deletionTimestamp: '2030-01-01T00:00:00Z' })
  const outcome = { status: { drawn: 'x' } }
  const failing = () => {
    throw new Error('was called')
  }

  it('is finalized by who holds it, and reconciled by nobody', async () => {
    const holder = reconciler({ name: 'shop', for: Shop, reconcile: failing, finalize: () => outcome })
    expect(await run(holder, { object: going, finalizing: true })).toEqual(outcome)
    expect(await run(holder, { object: going, finalizing: false })).toEqual({})
  })

  it('is not let go by a version of the function that does not finalize', async () => {
    const older = reconciler({ name: 'shop', for: Shop, reconcile: failing })
    await expect(run(older, { object: going, finalizing: true })).rejects.toThrow(
      'Reconciler shop finalizes, but this version of its function does not',
    )
    expect(await run(older, { object: going, finalizing: false })).toEqual({})
  })
})
