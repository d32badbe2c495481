import { describe, expect, it } from 'vitest'
import { Rounds } from '#primitives'
import { type Ask, namespacesOf, widest } from '../../bridge/reconcilers.ts'
import { FanOuts, NameIndex } from '../../bridge/relation.ts'
import { pods } from './objects.ts'

const ask = (more: Partial<Ask> = {}): Ask => ({ ref: pods, ...more })

describe('of several who ask for one resource', () => {
  it.each<[string, Ask[], ReturnType<typeof widest>]>([
    [
      'one gets what it asks for',
      [ask({ selector: 'a=b', fieldSelector: 'c=d' })],
      { labelSelector: 'a=b', fieldSelector: 'c=d' },
    ],
    ['those that agree get it, too', [ask({ selector: 'a=b' }), ask({ selector: 'a=b' })], { labelSelector: 'a=b' }],
    ['those that do not agree get everything', [ask({ selector: 'a=b' }), ask({ selector: 'a=c' })], {}],
    ['one that wants everything gets it', [ask({ selector: 'a=b' }), ask()], {}],
    ['metadata are enough if they are for all', [ask({ metadataOnly: true })], { metadataOfKind: 'Pod' }],
    [
      'whole objects if they disagree about the kind, which metadata do not tell',
      [ask({ metadataOnly: true }), ask({ metadataOnly: true, ref: { ...pods, kind: 'Pot' } })],
      {},
    ],
    ['metadata are not enough if one wants more', [ask({ metadataOnly: true }), ask()], {}],
  ])('%s', (_name, asks, selection) => {
    expect(widest(asks)).toEqual(selection)
  })

  it.each<[string, Ask[], boolean]>([
    ['metadata, whoever asks', [ask(), ask({ selector: 'a=b' }), ask({ fieldSelector: 'metadata.name=a' })], true],
    ['whole objects where one selects by another field', [ask(), ask({ fieldSelector: 'type=Opaque' })], false],
    ['whole objects where names of others are in its body', [ask(), ask({ namesInBody: true })], false],
  ])('of a kind of which only references travel is watched: %s', (_name, asks, isMetadata) => {
    expect(widest(asks, true).metadataOfKind).toBe(isMetadata ? 'Pod' : undefined)
  })

  it.each<[string, Ask[], string[] | undefined]>([
    [
      'each namespace is watched that one of them names',
      [ask({ namespaces: ['b'] }), ask({ namespaces: ['a', 'b'] })],
      ['a', 'b'],
    ],
    ['all are watched at once when one names none', [ask({ namespaces: ['b'] }), ask()], undefined],
    [
      'all are watched at once when they are many',
      [ask({ namespaces: Array.from({ length: 17 }, (_, i) => `${i}`) })],
      undefined,
    ],
  ])('%s', (_name, asks, namespaces) => {
    expect(namespacesOf(asks)).toEqual(namespaces)
  })
})

describe('an index of names', () => {
  it('gives who names something now, and forgets what nobody names', () => {
    const index = new NameIndex()
    index.set('k1', ['a', 'b'])
    index.set('k2', ['a'])
    expect([index.keysOf('a'), index.keysOf('b')]).toEqual([['k1', 'k2'], ['k1']])
    index.set('k1', ['b', 'c'])
    expect([index.keysOf('a'), index.keysOf('b'), index.keysOf('c')]).toEqual([['k2'], ['k1'], ['k1']])
    index.set('k1', [])
    index.set('k2', [])
    expect(['a', 'b', 'c'].flatMap((name) => index.keysOf(name))).toEqual([])
  })

  it('is soon done with all that one object has room for: to compare each name with each took minutes', () => {
    const index = new NameIndex()
    const names = (letter: string) => Array.from({ length: 200_000 }, (_, n) => letter + n)
    index.set('k', names('a'))
    index.set('k', names('b'))
    expect([index.keysOf('a1'), index.keysOf('b1')]).toEqual([[], ['k']])
  })
})

describe('what concerns all keys', () => {
  it('is done once for all who ask while it is being done, after they asked, and again after a failure', async () => {
    const rounds: PromiseWithResolvers<void>[] = []
    const fanOut = new Rounds(() => {
      const round = Promise.withResolvers<void>()
      rounds.push(round)
      return round.promise
    })
    const first = fanOut.run()
    const later = [fanOut.run(), fanOut.run()]
    expect(rounds).toHaveLength(1)
    rounds[0]?.reject(new Error('NATS is away'))
    await expect(first).rejects.toThrow('away')
    await new Promise(setImmediate)
    expect(rounds).toHaveLength(2)
    const last = fanOut.run()
    rounds[1]?.resolve()
    await Promise.all(later)
    await new Promise(setImmediate)
    rounds[2]?.resolve()
    await last
    expect(rounds).toHaveLength(3)
  })

  it('is done as the last who asked has it, after a failure too: a spec that has changed counts at once', async () => {
    const fanOuts = new FanOuts()
    const done: string[] = []
    const as = (spec: string) => async () => void done.push(spec)
    const failing = fanOuts.run('a', () => Promise.reject(new Error('NATS is away')))
    await expect(failing).rejects.toThrow('away')
    await fanOuts.run('a', as('new'))
    const held = Promise.withResolvers<void>()
    const first = fanOuts.run('a', () => held.promise)
    const waiting = [fanOuts.run('a', as('old')), fanOuts.run('a', as('newer'))]
    held.resolve()
    await Promise.all([first, ...waiting])
    expect(done).toEqual(['new', 'newer'])
  })
})
